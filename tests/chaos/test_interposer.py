"""The interposer between real sockets: it relays, it plays, it heals, and the shard hears of who left."""

import asyncio
import contextlib

import pytest

from gymproof.chaos.faults.black_hole import BlackHole
from gymproof.chaos.interposer import Interposer
from gymproof.chaos.scripting import RELAY, Script
from gymproof.chaos.waiting import wait_until

WITHIN_S = 5.0
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
GET = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue"


class Shard:
    """Answers each request once `go` is set; knows how many it got and how many connections were left early."""

    def __init__(self):
        self.requests = 0
        self.connections = 0
        self.left = 0
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, reader, writer):
        self.connections += 1
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"Content-Length: 2" in head:
                await reader.readexactly(2)
            self.requests += 1
            gone = asyncio.ensure_future(reader.read(1))
            ready = asyncio.ensure_future(self.go.wait())
            done, others = await asyncio.wait({gone, ready}, return_when=asyncio.FIRST_COMPLETED)
            for other in others:
                other.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await other
            if gone in done:
                self.left += 1
                return
            writer.write(ANSWER)


class Peer:
    """One connection of a router."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield cls(reader, writer)
        finally:
            writer.transport.abort()

    async def ask(self, request=POST):
        self.writer.write(request)
        return await self.answer()

    async def answer(self):
        """The answer, or what came before the end of the connection."""
        try:
            return await asyncio.wait_for(self.reader.readuntil(b"true"), WITHIN_S)
        except asyncio.IncompleteReadError as error:
            return error.partial
        except ConnectionError:
            return b"rst"


class Close(Script):
    async def on_request(self, connection, _request):
        connection.fin()


class Hold(Script):
    async def on_request(self, connection, _request):
        await connection.hold()


class Mark(Script):
    async def on_request(self, connection, request):
        await connection.send((await connection.fetch(request)).head(extra=[(b"x-mark", b"1")]) + b"true")


def test_it_relays_bytes_and_keeps_one_connection_for_each_of_the_routers(raw_server):
    async def main():
        shard = Shard()
        async with raw_server(shard) as port, Interposer(port) as interposer:
            async with Peer.of(interposer.port) as one, Peer.of(interposer.port) as other:
                got = [await one.ask(), await one.ask(GET), await other.ask()]
            return got, shard.connections

    assert asyncio.run(main()) == ([ANSWER] * 3, 2)


def test_a_script_acts_on_the_next_request_of_a_pooled_connection_and_on_new_ones(raw_server):
    async def main():
        shard = Shard()
        async with raw_server(shard) as port, Interposer(port) as interposer, Peer.of(interposer.port) as pooled:
            assert await pooled.ask() == ANSWER
            await interposer.play(Close())
            async with Peer.of(interposer.port) as new:
                got = [await pooled.ask(), await new.ask()]
            return got, shard.requests

    assert asyncio.run(main()) == ([b"", b""], 1)


def test_a_get_is_relayed_under_a_script(raw_server):
    async def main():
        async with raw_server(Shard()) as port, Interposer(port) as interposer:
            await interposer.play(Close())
            async with Peer.of(interposer.port) as peer:
                return [await peer.ask(GET), await peer.ask(POST)]

    assert asyncio.run(main()) == [ANSWER, b""]


def test_a_post_in_the_smallest_pieces_is_a_post(raw_server):
    async def main():
        async with raw_server(Shard()) as port, Interposer(port) as interposer:
            await interposer.play(Close())
            async with Peer.of(interposer.port) as peer:
                for byte in POST:
                    peer.writer.write(bytes([byte]))
                    await asyncio.sleep(0)
                return await peer.answer()

    assert asyncio.run(main()) == b""


def test_work_in_flight_goes_on_when_a_script_begins(raw_server):
    async def main():
        shard = Shard()
        shard.go.clear()
        async with raw_server(shard) as port, Interposer(port) as interposer, Peer.of(interposer.port) as peer:
            asked = asyncio.ensure_future(peer.ask())
            assert await wait_until(lambda: shard.requests == 1, WITHIN_S), "the shard never got the request"
            await interposer.play(Close())
            shard.go.set()
            return await asked, await peer.ask()

    assert asyncio.run(main()) == (ANSWER, b"")


def test_healing_closes_what_a_script_was_holding_and_keeps_what_it_has_answered(raw_server):
    async def main():
        async with (
            raw_server(Shard()) as port,
            Interposer(port) as interposer,
            Peer.of(interposer.port) as answered,
            Peer.of(interposer.port) as held,
        ):
            await interposer.play(Mark())
            marked = await answered.ask()
            await interposer.play(Hold())
            held.writer.write(POST)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(held.reader.read(1), 0.1)
            await interposer.play(RELAY)
            return b"x-mark" in marked, await held.answer(), await answered.ask()

    assert asyncio.run(main()) == (True, b"", ANSWER)


@pytest.mark.parametrize("script", [RELAY, Mark()])
def test_the_shard_sees_at_once_that_the_router_left(raw_server, script):
    async def main():
        shard = Shard()
        shard.go.clear()
        async with raw_server(shard) as port, Interposer(port) as interposer:
            await interposer.play(script)
            async with Peer.of(interposer.port) as peer:
                peer.writer.write(POST)
                assert await wait_until(lambda: shard.requests == 1, WITHIN_S), "the shard never got the request"
            return await wait_until(lambda: shard.left == 1, WITHIN_S)

    assert asyncio.run(main())


def test_a_connection_that_the_shard_closes_while_idle_is_closed_to_the_router(raw_server):
    async def once(reader, writer):
        await reader.readexactly(len(POST))
        writer.write(ANSWER)
        await writer.drain()

    async def main():
        async with raw_server(once) as port, Interposer(port) as interposer, Peer.of(interposer.port) as peer:
            return await peer.ask(), await asyncio.wait_for(peer.reader.read(), WITHIN_S)

    assert asyncio.run(main()) == (ANSWER, b"")


def test_a_shard_that_does_not_listen_resets_the_router():
    async def main():
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        async with Interposer(port) as interposer:
            async with Peer.of(interposer.port) as relayed:
                first = await relayed.ask()
            await interposer.play(Mark())
            async with Peer.of(interposer.port) as fetched:
                return first, await fetched.ask()

    assert asyncio.run(main()) == (b"rst", b"rst")


def test_a_request_that_comes_before_the_script_has_answered_waits_its_turn(raw_server):
    async def main():
        shard = Shard()
        shard.go.clear()
        async with raw_server(shard) as port, Interposer(port) as interposer:
            await interposer.play(Mark())
            async with Peer.of(interposer.port) as peer:
                peer.writer.write(POST)
                assert await wait_until(lambda: shard.requests == 1, WITHIN_S), "the shard never got the request"
                peer.writer.write(POST)
                shard.go.set()
                return [b"x-mark" in await peer.answer() for _ in range(2)]

    assert asyncio.run(main()) == [True, True]


def test_a_kernel_that_goes_on_accepting_is_no_black_hole(monkeypatch, raw_server):
    monkeypatch.setattr("gymproof.chaos.legs._FILLERS", 1)  # the first one is always taken

    async def main():
        async with raw_server(Shard()) as port, Interposer(port) as interposer:
            with pytest.raises(OSError, match="still takes connections"):
                await interposer.play(BlackHole())
            await interposer.play(RELAY)
            async with Peer.of(interposer.port) as peer:
                return await peer.ask()

    assert asyncio.run(main()) == ANSWER


def test_nothing_is_left_when_it_closes_in_the_middle_of_everything(raw_server):
    async def main():
        shard = Shard()
        shard.go.clear()
        async with raw_server(shard) as port:
            async with (
                Interposer(port) as interposer,
                Peer.of(interposer.port) as relayed,
                Peer.of(interposer.port) as fetched,
            ):
                relayed.writer.write(POST)
                assert await wait_until(lambda: shard.requests == 1, WITHIN_S), "the shard never got the first request"
                await interposer.play(Mark())
                fetched.writer.write(POST)
                assert await wait_until(lambda: shard.requests == 2, WITHIN_S), "the shard never got the second request"
                await interposer.play(BlackHole())
            return await wait_until(lambda: shard.left == 2, WITHIN_S)

    assert asyncio.run(main())
