"""The wiretap between real sockets: what passes, how it ends, and what was recorded."""

import asyncio
import hashlib
import socket
import struct

import pytest

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

    return handler


def ask(tapped, handler, request=REQUEST):
    """Send one request through a wiretap to a router; gives what came back, how it ended, and the attempts."""

    async def main():
        async with tapped(handler) as (_, reader, writer, attempts):
            writer.write(request)
            got = await read_all(reader)
        return *got, attempts

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("then", "data", "how", "ending"),
    [
        ("fin", RESPONSE, "fin", Ending.COMPLETE),
        ("rst", RESPONSE, "rst", Ending.COMPLETE),
        ("mid", RESPONSE[:-1], "fin", Ending.TRUNCATED),
    ],
)
def test_an_answer_and_how_it_ends_pass_and_are_recorded(tapped, then, data, how, ending):
    *got, (attempt,) = ask(tapped, answers(then=then))

    assert (*got, attempt.ending) == (data, how, ending)
    assert (attempt.call, attempt.status) == ("r1.t0", 200)
    assert (attempt.response_sha256 == hashlib.sha256(b"{}").hexdigest()) is (then != "mid")


async def _close_at_once(reader, writer):
    writer.write_eof()
    await reader.read()  # closing with unread bytes would be an RST


async def _reset_at_once(_reader, writer):
    reset(writer)


@pytest.mark.parametrize(("handler", "ending"), [(_close_at_once, "fin"), (_reset_at_once, "rst")])
def test_a_router_that_accepts_and_ends_leaves_an_attempt_with_its_call(tapped, handler, ending):
    data, how, (attempt,) = ask(tapped, handler)

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
def test_a_client_that_leaves_is_seen_to_leave_by_the_router_in_the_same_way(tapped, how):
    async def main():
        asked, left = asyncio.Event(), []

        async def handler(reader, _writer):
            await reader.readexactly(len(REQUEST))
            asked.set()
            left.append(await read_all(reader))

        async with tapped(handler) as (tap, _, writer, attempts):
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


def test_a_half_closed_client_still_gets_its_answer(tapped):
    async def main():
        async def handler(reader, writer):
            assert await reader.read() == REQUEST
            writer.write(RESPONSE)
            await writer.drain()

        async with tapped(handler) as (_, reader, writer, _):
            writer.write(REQUEST)
            writer.write_eof()
            return await read_all(reader)

    assert asyncio.run(main()) == (RESPONSE, "fin")


def test_a_streamed_answer_passes_event_by_event(tapped):
    async def main():
        seen = asyncio.Event()
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"

        async def handler(reader, writer):
            await reader.readexactly(len(REQUEST))
            writer.write(head)
            await asyncio.wait_for(seen.wait(), WITHIN_S)  # only the first event lets the second one go
            writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
            await writer.drain()

        async with tapped(handler) as (_, reader, writer, attempts):
            writer.write(REQUEST)
            assert await asyncio.wait_for(reader.readexactly(len(head)), WITHIN_S) == head
            seen.set()
            await read_all(reader)
        return attempts

    (attempt,) = asyncio.run(main())

    assert attempt.response_sha256 == hashlib.sha256(b"onetwo").hexdigest()


def test_a_kept_connection_carries_one_attempt_after_the_other(tapped):
    async def main():
        async def handler(reader, writer):
            while True:
                await reader.readexactly(len(REQUEST))
                writer.write(RESPONSE)

        async with tapped(handler) as (_, reader, writer, attempts):
            for _ in range(3):
                writer.write(REQUEST)
                assert await asyncio.wait_for(reader.readexactly(len(RESPONSE)), WITHIN_S) == RESPONSE
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
