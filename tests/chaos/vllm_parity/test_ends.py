"""How connections, clients, engines and servers end, and what that looks like."""

import asyncio
import signal
import time

import aiohttp
import pytest

from gymproof.chaos.history import Delivery
from gymproof.chaos.waiting import wait_until

ENGINE_DEAD = {
    "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "type": "InternalServerError",
    "param": None,
    "code": 500,
}


def test_an_idle_connection_is_closed_after_five_seconds_and_one_that_never_asked_is_not(play):
    async def story(stand):
        reader, writer = await asyncio.open_connection("127.0.0.1", stand.shard.port)
        silent, silent_writer = await asyncio.open_connection("127.0.0.1", stand.shard.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: shard\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        began = time.monotonic()
        assert await asyncio.wait_for(reader.read(), stand.within_s) == b""
        assert 4.5 <= time.monotonic() - began <= 5 + stand.soon_s
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(silent.read(), 0.5)
        writer.transport.abort()
        silent_writer.transport.abort()

    play(story)


def test_a_client_that_leaves_frees_the_engine_and_is_noted(play):
    async def story(stand):
        for stream in (False, True):
            call = await stand.under_way(stand.chat(tokens=3000, stream=stream))
            call.cancel()
            assert await wait_until(lambda: stand.shard.in_flight() == 0, stand.soon_s)
            assert stand.shard.served()[-1].ending is Delivery.CANCELLED
            await stand.running(stand.soon_s, lambda running: running == 0)

    play(story)


def test_a_killed_engine_is_a_500_then_a_closed_port_then_an_exit_with_0(play):
    async def story(stand):
        call = await stand.under_way(stand.chat(tokens=3000))
        stand.shard.signal("engine", signal.SIGKILL)
        assert await call == (500, {"error": ENGINE_DEAD})
        assert await stand.refuses_within(stand.soon_s)
        assert await stand.ended_with() == 0

    play(story)


def test_a_stream_whose_engine_dies_says_so_and_then_done(play):
    async def story(stand):
        call = await stand.under_way(stand.stream(tokens=3000))
        stand.shard.signal("engine", signal.SIGKILL)
        *_, error, done = await call
        assert (error, done) == ({"error": ENGINE_DEAD}, "[DONE]")

    play(story)


def test_an_idle_server_follows_its_engine_within_some_seconds(play):
    async def story(stand):
        stand.shard.signal("engine", signal.SIGKILL)
        assert await stand.refuses_within(6 + stand.soon_s)
        assert await stand.ended_with() == 0

    play(story)


def test_a_killed_server_says_nothing_and_leaves_its_engine_behind(play):
    async def story(stand):
        call = await stand.under_way(stand.chat(tokens=3000))
        stand.shard.signal("server", signal.SIGKILL)
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await call
        assert await stand.refuses_within(stand.soon_s)
        assert await stand.ended_with() == -signal.SIGKILL
        assert stand.shard.pid("engine") is not None
        assert stand.shard.served()[-1].ending is Delivery.RUNNING

    play(story)


def test_a_stream_whose_server_dies_ends_without_an_end(play):
    async def story(stand):
        call = await stand.under_way(stand.stream(tokens=3000))
        stand.shard.signal("server", signal.SIGKILL)
        with pytest.raises(aiohttp.ClientPayloadError):
            await call

    play(story)


def test_sigterm_ends_what_is_in_flight_in_one_of_three_ways_and_the_server_with_0(play):
    async def story(stand):
        whole = stand.begin(stand.chat(tokens=3000))
        stream = stand.begin(stand.stream(tokens=3000))
        await stand.begun(2)
        stand.shard.signal("server", signal.SIGTERM)
        assert await stand.refuses_within(stand.soon_s)
        await asyncio.wait([whole, stream], timeout=stand.soon_s)
        assert whole.done() == stream.done()
        if whole.done():
            status, answer = await whole
            *_, last, done = await stream
            assert done == "[DONE]"
            if status == 200:
                assert answer["choices"][0]["finish_reason"] == "abort"
                assert answer["usage"]["completion_tokens"] < 3000
                assert last["choices"][0]["finish_reason"] == "abort"
            else:
                assert (status, answer) == (500, {"error": ENGINE_DEAD})
                assert last == {"error": ENGINE_DEAD}
        whole.cancel()
        stream.cancel()
        assert await stand.ended_with() == 0

    play(story)
