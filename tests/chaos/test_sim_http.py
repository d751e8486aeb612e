import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

from gymproof.chaos.ports import PortLease
from gymproof.chaos.sim.http import Exchange, Request, Server

WITHIN_S = 5.0


@asynccontextmanager
async def serving(handler, *, keep_alive_s=5.0):
    """A server, and a function that opens a connection to it."""
    server = Server(handler, keep_alive_s=keep_alive_s)
    writers: list[asyncio.StreamWriter] = []
    with PortLease() as lease:
        await server.listen(lease.port)

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", lease.port)
            writers.append(writer)
            return reader, writer

        try:
            async with asyncio.timeout(WITHIN_S):
                yield connect
        finally:
            server.stop()
            for writer in writers:
                writer.transport.abort()


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())


async def echo(request: Request, exchange: Exchange) -> None:
    exchange.reply(200, f"{request.method} {request.path} {request.query}".encode() + request.body, "text/plain")


def test_an_answer_has_uvicorns_head():
    async def story():
        async with serving(echo) as connect:
            reader, writer = await connect()
            writer.write(b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n")
            head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            assert head[0] == b"HTTP/1.1 200 OK"
            assert [line.partition(b":")[0] for line in head[1:-2]] == [
                *(b"date", b"server", b"content-length", b"content-type", b"vary")
            ]
            assert head[1].endswith(b" GMT")
            assert await reader.readexactly(len("GET /a {'b': 'c'}")) == b"GET /a {'b': 'c'}"

    run(story)


def test_a_chunked_body_and_expect_continue_are_understood():
    async def story():
        async with serving(echo) as connect:
            reader, writer = await connect()
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n")
            assert b"content-length: 14" in await reader.readuntil(b"\r\n\r\n")
            assert (await reader.readexactly(14)).endswith(b"abcde")

    run(story)


def test_pipelined_requests_are_answered_in_order():
    async def story():
        async with serving(echo) as connect:
            reader, writer = await connect()
            writer.write(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(3)))
            for number in range(3):
                await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(9) == b"GET /%d {}" % number

    run(story)


def test_an_idle_connection_is_closed_and_one_that_never_sent_is_not():
    async def story():
        async with serving(echo, keep_alive_s=0.1) as connect:
            silent, _ = await connect()
            reader, writer = await connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.read(-1)).endswith(b"GET / {}")
            assert not silent.at_eof()

    run(story)


def test_a_second_request_in_time_keeps_the_connection():
    async def story():
        async with serving(echo, keep_alive_s=1.0) as connect:
            reader, writer = await connect()
            for _ in range(2):
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                await reader.readuntil(b"GET / {}")

    run(story)


def test_connection_close_is_honoured_and_said():
    async def story():
        async with serving(echo) as connect:
            reader, writer = await connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = await reader.read(-1)
            assert b"\r\nconnection: close\r\n" in answer
            assert answer.endswith(b"GET / {}")

    run(story)


def test_what_is_no_http_gets_uvicorns_400_and_an_end():
    async def story():
        async with serving(echo) as connect:
            reader, writer = await connect()
            writer.write(b"\x16\x03\x01 hello\r\n\r\n")
            answer = await reader.read(-1)
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert answer.endswith(b"Invalid HTTP request received.")

    run(story)


def test_a_client_that_leaves_cancels_the_work_for_it():
    async def story():
        began, cancelled = asyncio.Event(), asyncio.Event()

        async def work(_request: Request, _exchange: Exchange) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with serving(work) as connect:
            _, writer = await connect()
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            await began.wait()
            writer.transport.abort()
            await cancelled.wait()

    run(story)


def test_a_stream_is_one_chunk_an_event_and_its_end_is_reported_before_it_is_sent():
    async def story():
        ended = []

        async def stream(_request: Request, exchange: Exchange) -> None:
            exchange.on_end = lambda *seen: ended.append(seen)
            exchange.start_stream()
            exchange.send(b"data: 1\n\n")
            exchange.send(b"data: 2\n\n")
            exchange.end_stream()

        async with serving(stream) as connect:
            reader, writer = await connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"content-type: text/event-stream; charset=utf-8\r\n" in head
            body = await reader.readuntil(b"0\r\n\r\n")
            assert body == b"9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"
            [(status, _, size)] = ended
            assert (status, size) == (200, 18)

    run(story)
