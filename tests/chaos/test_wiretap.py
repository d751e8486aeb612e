"""The wiretap between real sockets: what passes, how it ends, and what was recorded."""

import asyncio
import hashlib
import socket
import struct
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymproof.chaos.history import Ending
from gymproof.chaos.tags import tag
from gymproof.chaos.waiting import wait_until
from gymproof.chaos.wiretap import Wiretap

BODY = f'{{"messages": [{{"role": "user", "content": "{tag("r1.t0")}"}}]}}'.encode()
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
WITHIN_S = 5.0


def reset(writer):
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def read_all(reader):
    """What comes until FIN, or what came before an RST and then "rst"."""
    data = b""
    try:
        while piece := await asyncio.wait_for(reader.read(1 << 16), WITHIN_S):
            data += piece
    except ConnectionError:
        return data, "rst"
    return data, "fin"


def answers(*, then):
    """A router that reads one request, answers, and ends the connection in the given way."""

    async def handler(reader, writer):
        await reader.readexactly(len(REQUEST))
        writer.write(RESPONSE if then != "mid" else RESPONSE[:-1])
        await writer.drain()
        if then == "rst":
            reset(writer)
        elif then == "keep":
            await reader.read()

    return handler


def ask(raw_server, handler, request=REQUEST):
    """Send one request through a wiretap to a router; gives what came back, how it ended, and the attempts."""

    async def main():
        attempts = []
        async with raw_server(handler) as port, Wiretap(port, attempts.append) as tap:
            reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
            writer.write(request)
            got = await read_all(reader)
            writer.close()
        return *got, attempts

    return asyncio.run(main())


def test_an_answer_and_the_fin_behind_it_pass(raw_server):
    data, how, (attempt,) = ask(raw_server, answers(then="fin"))

    assert (data, how) == (RESPONSE, "fin")
    assert (attempt.call, attempt.ending, attempt.status) == ("r1.t0", Ending.COMPLETE, 200)
    assert attempt.response_sha256 == hashlib.sha256(b"{}").hexdigest()


def test_an_rst_of_the_router_reaches_the_client_as_rst(raw_server):
    data, how, (attempt,) = ask(raw_server, answers(then="rst"))

    assert (data, how, attempt.ending) == (RESPONSE, "rst", Ending.COMPLETE)


def test_a_cut_answer_is_passed_as_it_is_and_recorded_as_truncated(raw_server):
    data, how, (attempt,) = ask(raw_server, answers(then="mid"))

    assert (data, how, attempt.ending) == (RESPONSE[:-1], "fin", Ending.TRUNCATED)


async def _close_at_once(reader, writer):
    writer.write_eof()
    await reader.read()  # closing with unread bytes would be an RST


async def _reset_at_once(_reader, writer):
    reset(writer)


@pytest.mark.parametrize(("handler", "ending"), [(_close_at_once, "fin"), (_reset_at_once, "rst")])
def test_a_router_that_accepts_and_ends_leaves_an_attempt_with_its_call(raw_server, handler, ending):
    data, how, (attempt,) = ask(raw_server, handler)

    assert (data, how) == (b"", ending)
    assert (attempt.call, attempt.ending) == ("r1.t0", Ending.NO_ANSWER)


def test_a_router_that_does_not_listen_resets_the_client_once_the_request_is_known():
    async def main():
        attempts = []
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        async with Wiretap(port, attempts.append) as tap:
            reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
            writer.write(REQUEST)
            got = await read_all(reader)
            writer.close()
        return *got, attempts

    data, how, (attempt,) = asyncio.run(main())

    assert (data, how) == (b"", "rst")
    assert (attempt.call, attempt.ending) == ("r1.t0", Ending.REFUSED)


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_client_that_leaves_is_seen_to_leave_by_the_router_in_the_same_way(raw_server, how):
    async def main():
        attempts = []
        asked, left = asyncio.Event(), []

        async def handler(reader, _writer):
            await reader.readexactly(len(REQUEST))
            asked.set()
            left.append(await read_all(reader))

        async with raw_server(handler) as port, Wiretap(port, attempts.append) as tap:
            _, writer = await asyncio.open_connection("127.0.0.1", tap.port)
            writer.write(REQUEST)
            await asyncio.wait_for(asked.wait(), WITHIN_S)
            pending = tap.pending()
            if how == "rst":
                reset(writer)
            else:
                writer.close()
            assert await wait_until(lambda: bool(left), WITHIN_S), "the router never saw the client leave"
            return pending, tap.pending(), left, attempts

    before, after, left, (attempt,) = asyncio.run(main())

    assert (before, after, left) == (1, 0, [(b"", how)])
    assert attempt.ending is Ending.CLIENT_LEFT


def test_a_half_closed_client_still_gets_its_answer(raw_server):
    async def main():
        async def handler(reader, writer):
            assert await reader.read() == REQUEST
            writer.write(RESPONSE)
            await writer.drain()

        async with raw_server(handler) as port, Wiretap(port, lambda _attempt: None) as tap:
            reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
            writer.write(REQUEST)
            writer.write_eof()
            got = await read_all(reader)
            writer.close()
            return got

    assert asyncio.run(main()) == (RESPONSE, "fin")


def test_a_streamed_answer_passes_event_by_event(raw_server):
    async def main():
        seen = asyncio.Event()
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"

        async def handler(reader, writer):
            await reader.readexactly(len(REQUEST))
            writer.write(head)
            await asyncio.wait_for(seen.wait(), WITHIN_S)  # only the first event lets the second one go
            writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
            await writer.drain()

        attempts = []
        async with raw_server(handler) as port, Wiretap(port, attempts.append) as tap:
            reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
            writer.write(REQUEST)
            assert await asyncio.wait_for(reader.readexactly(len(head)), WITHIN_S) == head
            seen.set()
            await read_all(reader)
            writer.close()
        return attempts

    (attempt,) = asyncio.run(main())

    assert attempt.response_sha256 == hashlib.sha256(b"onetwo").hexdigest()


def test_a_kept_connection_carries_one_attempt_after_the_other(raw_server):
    async def main():
        async def handler(reader, writer):
            while True:
                await reader.readexactly(len(REQUEST))
                writer.write(RESPONSE)

        attempts = []
        async with raw_server(handler) as port, Wiretap(port, attempts.append) as tap:
            reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
            for _ in range(3):
                writer.write(REQUEST)
                assert await asyncio.wait_for(reader.readexactly(len(RESPONSE)), WITHIN_S) == RESPONSE
            writer.close()
        return attempts

    assert [attempt.ending for attempt in asyncio.run(main())] == [Ending.COMPLETE] * 3


def test_what_is_open_when_the_tap_closes_is_pending_and_has_no_end(raw_server):
    async def main():
        attempts, asked = [], asyncio.Event()

        async def handler(reader, _writer):
            await reader.readexactly(len(REQUEST))
            asked.set()
            await reader.read()

        async with raw_server(handler) as port, Wiretap(port, attempts.append) as tap:
            _, writer = await asyncio.open_connection("127.0.0.1", tap.port)
            writer.write(REQUEST)
            await asyncio.wait_for(asked.wait(), WITHIN_S)
        writer.transport.abort()
        return attempts

    (attempt,) = asyncio.run(main())

    assert (attempt.ending, attempt.ended) == (Ending.PENDING, None)


def test_a_large_body_passes_whole_in_both_directions(raw_server):
    large = b"x" * (8 << 20)
    request = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(large)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(large)

    async def handler(reader, writer):
        await reader.readexactly(len(request))
        assert await reader.readexactly(len(large)) == large
        writer.write(head + large)
        await writer.drain()

    data, how, (attempt,) = ask(raw_server, handler, request + large)

    assert (data == head + large, how) == (True, "fin")
    assert attempt.request_sha256 == attempt.response_sha256 == hashlib.sha256(large).hexdigest()


@pytest.mark.parametrize("side", ["router", "client"])
def test_whoever_does_not_read_stops_the_other_side_and_fills_no_memory(raw_server, side):
    flood = b"x" * (64 << 20)

    async def main():
        blocked = []

        async def writes(writer):
            writer.write(flood)
            try:
                await asyncio.wait_for(writer.drain(), 0.5)
            except TimeoutError:
                blocked.append(writer.transport.get_write_buffer_size() > len(flood) // 2)

        async def handler(reader, writer):
            reader._transport.pause_reading()
            if side == "client":
                await writes(writer)
            await asyncio.sleep(WITHIN_S)

        async with raw_server(handler) as port, Wiretap(port, lambda _attempt: None) as tap:
            reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
            reader._transport.pause_reading()
            if side == "router":
                await writes(writer)
            assert await wait_until(lambda: bool(blocked), WITHIN_S), "all of the flood was taken"
            writer.transport.abort()
        return blocked

    assert asyncio.run(main()) == [True]


def test_three_hundred_clients_at_once_each_get_their_answer(raw_server):
    async def main():
        attempts = []
        async with raw_server(answers(then="fin")) as port, Wiretap(port, attempts.append) as tap:

            async def client():
                reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
                writer.write(REQUEST)
                got = await asyncio.wait_for(reader.read(), 60)
                writer.close()
                return got

            got = await asyncio.gather(*(client() for _ in range(300)))
        return got, attempts

    got, attempts = asyncio.run(main())

    assert got == [RESPONSE] * 300
    assert {attempt.ending for attempt in attempts} == {Ending.COMPLETE}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.lists(st.binary(min_size=1, max_size=40), max_size=6), back=st.lists(st.binary(min_size=1, max_size=40)))
def test_any_bytes_pass_unchanged_whatever_the_record_makes_of_them(raw_server, sent, back):
    async def main():
        arrived = []

        async def handler(reader, writer):
            for piece in back:
                writer.write(piece)
                await asyncio.sleep(0)
            writer.write_eof()
            arrived.append(await reader.read())

        async with raw_server(handler) as port, Wiretap(port, lambda _attempt: None) as tap:
            reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
            for piece in sent:
                writer.write(piece)
                await asyncio.sleep(0)
            writer.write_eof()
            got = await read_all(reader)
            assert await wait_until(lambda: bool(arrived), WITHIN_S), "the router never saw the client's FIN"
            writer.close()
        return got, arrived

    assert asyncio.run(main()) == ((b"".join(back), "fin"), [b"".join(sent)])


def test_the_tap_adds_no_delay(raw_server):
    async def main():
        async def handler(reader, writer):
            while True:
                await reader.readexactly(len(REQUEST))
                writer.write(RESPONSE)

        async with raw_server(handler) as port, Wiretap(port, lambda _attempt: None) as tap:
            reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
            began = time.monotonic()
            for _ in range(50):
                writer.write(REQUEST[:40])
                await asyncio.sleep(0)
                writer.write(REQUEST[40:])
                await asyncio.wait_for(reader.readexactly(len(RESPONSE)), WITHIN_S)
            writer.close()
            return time.monotonic() - began

    assert asyncio.run(main()) < 50 * 0.04  # what Nagle's delay alone would cost
