"""Clients that misbehave do so, say so, and fail where they could not."""

import asyncio

import pytest

from gymproof.chaos.faults.bad_requests import BadRequests
from gymproof.chaos.faults.base import Layer
from gymproof.chaos.faults.hang_ups import HangUps
from gymproof.chaos.history import Ending
from gymproof.chaos.waiting import wait_until
from gymproof.chaos.wiretap import Wiretap

WITHIN_S = 5.0


def strike(raw_server, fault, handler):
    """Let the fault strike a router behind a wiretap; gives what it said and the attempts."""

    async def main():
        attempts = []
        async with raw_server(handler) as port, Wiretap(port, attempts.append) as tap:
            said = await fault.strike(None, tap.url)
            assert await wait_until(lambda: tap.pending() == 0, WITHIN_S), "a client of the fault is still there"
        return said, attempts

    return asyncio.run(main())


async def _silent(reader, _writer):
    await reader.read()


def answer(status):
    async def handler(reader, writer):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.rpartition(b": ")[2]))
            writer.write(b"HTTP/1.1 %d -\r\nContent-Length: 2\r\n\r\n{}" % status)

    return handler


def test_clients_hang_up_under_names_of_their_own(raw_server):
    said, attempts = strike(raw_server, HangUps(count=16), _silent)

    assert said == "16 of 16 clients left before their answer"
    assert {attempt.ending for attempt in attempts} == {Ending.CLIENT_LEFT}
    assert {attempt.call for attempt in attempts} >= {f"hang-up.{number}" for number in (2, 3, 4, 5)}
    assert "" in {attempt.request_sha256 for attempt in attempts}, "nobody left in the middle of the upload"


def test_clients_that_are_answered_before_they_leave_are_no_fault(raw_server):
    async def at_once(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n")
        await reader.read()

    class Late(HangUps):
        async def _hang_up(self, entry_url, call, manner):
            return await super()._hang_up(entry_url, call, type(manner)(1.0, WITHIN_S, manner.reset))

    with pytest.raises(RuntimeError, match="answered before they could leave"):
        strike(raw_server, Late(count=2), at_once)


def test_bad_requests_of_each_kind_are_counted_by_their_answers(raw_server):
    said, attempts = strike(raw_server, BadRequests(count=6, words=10), answer(400))

    assert said == "6 x 400"
    assert {attempt.call for attempt in attempts} == {f"bad-request.{number}" for number in range(6)}


@pytest.mark.parametrize("handler", [answer(200), answer(500)])
def test_bad_requests_that_nobody_refuses_are_no_fault(raw_server, handler):
    with pytest.raises(RuntimeError, match="no bad request was answered with a 4xx"):
        strike(raw_server, BadRequests(count=3, words=10), handler)


def test_a_router_that_is_away_is_no_answer():
    async def main():
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await BadRequests(count=3).strike(None, f"http://127.0.0.1:{port}")

    with pytest.raises(RuntimeError, match="3 x no answer"):
        asyncio.run(main())


def test_they_are_on_the_clients_layer():
    assert (HangUps.layer, BadRequests.layer) == (Layer.CLIENT, Layer.CLIENT)
