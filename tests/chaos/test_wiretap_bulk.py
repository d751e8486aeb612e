"""The wiretap under much: large bodies, floods, crowds, any bytes, and no time lost."""

import asyncio
import hashlib
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymproof.chaos.history import Ending
from gymproof.chaos.waiting import wait_until
from gymproof.chaos.wiretap import Wiretap

REQUEST = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
WITHIN_S = 5.0


async def answers_each(reader, writer):
    while True:
        await reader.readexactly(len(REQUEST))
        writer.write(RESPONSE)


def test_a_large_body_passes_whole_in_both_directions(tapped):
    large = b"x" * (8 << 20)
    request = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(large)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(large)

    async def handler(reader, writer):
        await reader.readexactly(len(request))
        assert await reader.readexactly(len(large)) == large
        writer.write(head + large)
        await writer.drain()

    async def main():
        async with tapped(handler) as (_, reader, writer, attempts):
            writer.write(request + large)
            got = await asyncio.wait_for(reader.read(), WITHIN_S)
        return got, attempts

    data, (attempt,) = asyncio.run(main())

    assert len(data) == len(head + large)
    assert attempt.request_sha256 == attempt.response_sha256 == hashlib.sha256(large).hexdigest()


@pytest.mark.parametrize("side", ["router", "client"])
def test_whoever_does_not_read_stops_the_other_side_and_fills_no_memory(tapped, side):
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

        async with tapped(handler) as (_, reader, writer, _):
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
        async with raw_server(answers_each) as port, Wiretap(port, attempts.append) as tap:

            async def client():
                reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
                writer.write(REQUEST)
                got = await asyncio.wait_for(reader.readexactly(len(RESPONSE)), 60)
                writer.close()
                return got

            got = await asyncio.gather(*(client() for _ in range(300)))
        return got, attempts

    got, attempts = asyncio.run(main())

    assert got == [RESPONSE] * 300
    assert {attempt.ending for attempt in attempts} == {Ending.COMPLETE}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.lists(st.binary(min_size=1, max_size=40), max_size=6), back=st.lists(st.binary(min_size=1, max_size=40)))
def test_any_bytes_pass_unchanged_whatever_the_record_makes_of_them(tapped, sent, back):
    async def main():
        arrived = []

        async def handler(reader, writer):
            for piece in back:
                writer.write(piece)
                await asyncio.sleep(0)
            writer.write_eof()
            arrived.append(await reader.read())

        async with tapped(handler) as (_, reader, writer, _):
            for piece in sent:
                writer.write(piece)
                await asyncio.sleep(0)
            writer.write_eof()
            got = await asyncio.wait_for(reader.read(), WITHIN_S)
            assert await wait_until(lambda: bool(arrived), WITHIN_S), "the router never saw the client's FIN"
        return got, arrived

    assert asyncio.run(main()) == (b"".join(back), [b"".join(sent)])


def test_the_tap_adds_no_delay(tapped):
    async def main():
        async with tapped(answers_each) as (_, reader, writer, _):
            began = time.monotonic()
            for _ in range(50):
                writer.write(REQUEST[:40])
                await asyncio.sleep(0)
                writer.write(REQUEST[40:])
                await asyncio.wait_for(reader.readexactly(len(RESPONSE)), WITHIN_S)
            return time.monotonic() - began

    assert asyncio.run(main()) < 50 * 0.04  # what Nagle's delay alone would cost
