"""An engine or a server that stands still: stopped, paused, asleep."""

import asyncio
import re
import signal

import orjson
import pytest

from gymproof.chaos.waiting import wait_until

CHAT, TEXT, TOKENIZE = "/v1/chat/completions", "/v1/completions", "/tokenize"


def test_a_stopped_engine_hangs_generations_only_and_they_end_when_it_goes_on(play):
    async def story(stand):
        call = await stand.under_way(stand.chat(tokens=200))
        stand.shard.signal("engine", signal.SIGSTOP)
        late = stand.begin(stand.chat(tokens=1))
        assert await wait_until(lambda: stand.shard.in_flight() == 2, stand.within_s)
        for path in ("/health", "/ping", "/version", "/load", "/v1/models", "/metrics"):
            assert (await stand.get(path))[0] == 200
        assert (await stand.post(TOKENIZE, {"prompt": "Hi"}))[0] == 200
        assert (await stand.chat("word " * 5000))[0] == 400
        frozen = await stand.counters()
        for path in ("/is_paused", "/is_sleeping"):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stand.get(path), 0.3)
        assert await stand.counters() == frozen
        assert (await stand.metric("vllm:num_requests_running")) == 1.0
        assert not call.done()
        assert not late.done()
        stand.shard.signal("engine", signal.SIGCONT)
        assert [(await call)[0], (await late)[0]] == [200, 200]

    play(story)


def test_a_stopped_server_takes_connections_and_answers_when_it_goes_on(play):
    async def story(stand):
        call = await stand.under_way(stand.chat(tokens=100))
        stand.shard.signal("server", signal.SIGSTOP)
        late = stand.begin(stand.get("/health"))
        await asyncio.wait([late], timeout=0.3)
        assert not late.done()
        assert not call.done()
        stand.shard.signal("server", signal.SIGCONT)
        assert (await late)[0] == 200
        assert (await call)[0] == 200

    play(story)


def test_pause_abort_cuts_what_is_there_and_holds_what_comes(play):
    async def story(stand):
        call = await stand.under_way(stand.chat(tokens=3000))
        assert await stand.post("/pause", params={"mode": "abort"}) == (200, {"status": "paused"})
        assert (await call)[1]["choices"][0]["finish_reason"] == "abort"
        await held_until(stand, "/resume")

    play(story)


def test_pause_wait_answers_when_what_runs_has_ended(play):
    async def story(stand):
        call = await stand.under_way(stand.chat(tokens=200))
        assert await stand.post("/pause", params={"mode": "wait"}) == (200, {"status": "paused"})
        assert (await asyncio.wait_for(call, stand.soon_s))[1]["choices"][0]["finish_reason"] == "length"
        await held_until(stand, "/resume")

    play(story)


def test_pause_keep_freezes_what_is_there_and_its_metrics(play):
    async def story(stand):
        call = await stand.under_way(stand.chat(tokens=300))
        assert await stand.post("/pause", params={"mode": "keep"}) == (200, {"status": "paused"})
        frozen = await stand.counters()
        await held_until(stand, "/resume", before_resuming=frozen)
        status, answer = await call
        assert (status, answer["choices"][0]["finish_reason"]) == (200, "length")
        assert answer["usage"]["completion_tokens"] == 300

    play(story)


@pytest.mark.parametrize(("level", "state"), [(0, None), (1, "weights_offloaded"), (2, "discard_all")])
def test_a_sleeping_engine_cuts_what_is_there_and_holds_what_comes(play, level, state):
    async def story(stand):
        call = await stand.under_way(stand.chat(tokens=3000))
        slept = await stand.post("/sleep", params={"level": level})
        assert slept == (200, {"status": "sleeping", "level": level})
        assert (await call)[1]["choices"][0]["finish_reason"] == "abort"
        page = (await stand.get("/metrics"))[1].decode()
        on = re.findall(r'^vllm:engine_sleep_state\{.*sleep_state="(\w+)".*\} 1.0$', page, re.MULTILINE)
        assert on == ([state] if state else [])
        await held_until(stand, "/wake_up")

    play(story)


async def held_until(stand, route: str, before_resuming: list[str] | None = None) -> None:
    """A new request waits, while all else is well, until the route is called."""
    held = stand.begin(stand.chat(tokens=1))
    assert await wait_until(lambda: stand.shard.in_flight() > 0, stand.within_s)
    assert (await stand.get("/health"))[0] == 200
    assert orjson.loads((await stand.get("/is_paused"))[1]) == {"is_paused": True}
    assert orjson.loads((await stand.get("/is_sleeping"))[1]) == {"is_sleeping": True}
    await asyncio.wait([held], timeout=0.2)
    assert not held.done()
    assert await stand.metric("vllm:num_requests_waiting") == 0.0
    if before_resuming is not None:
        assert await stand.counters() == before_resuming
    assert (await stand.post(route))[0] == 200
    assert (await asyncio.wait_for(held, stand.within_s))[0] == 200
    assert orjson.loads((await stand.get("/is_paused"))[1]) == {"is_paused": False}
