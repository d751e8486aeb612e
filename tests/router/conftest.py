"""A stage: scripted backends that speak raw bytes, a real router, a raw client, in one event loop on loopback."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self

import orjson
import pytest

from gymproof.router.config import make_config
from gymproof.router.core import Router
from gymproof.router.sockets import bind

CHAT = "/v1/chat/completions"
COMPLETION = orjson.dumps({"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]})
WAIT_S = 10.0

Script = Callable[["Exchange"], Awaitable[None]]


def answer(status: int = 200, body: bytes = COMPLETION, *headers: str) -> bytes:
    """A well-framed answer as bytes."""
    lines = [f"HTTP/1.1 {status} Scripted", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def reset_connection(writer: asyncio.StreamWriter) -> None:
    """End it by RST."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def settle() -> None:
    """Let the loop deliver what it has already noticed: ends of connections take a few rounds."""
    for _ in range(5):
        await asyncio.sleep(0)


@dataclass
class Exchange:
    """One request that a backend received, and the means to answer it."""

    number: int  # counts the requests of this backend, from 1
    on_connection: int  # counts those of this connection, from 1
    head: bytes
    body: bytes
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        reset_connection(self.writer)


class Backend:
    """A server whose every answer is a script. Probes are answered apart from it."""

    def __init__(self, script: Script, *, healthy: bool = True, generates: bool = True) -> None:
        self.script = script
        self.healthy = healthy
        self.generates = generates
        self.exchanges: list[Exchange] = []
        self.abandoned = 0  # requests whose sender left before they were answered
        self.accepted = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self, port: int = 0) -> None:
        sock = bind("127.0.0.1", port)
        self.port = sock.getsockname()[1]
        self._server = await asyncio.start_server(self._accept, sock=sock)

    async def stop(self) -> None:
        self._server.close()
        await settle()  # a connection that was just being accepted has become a task
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await settle()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                await self._converse(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served = 0
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
            body = await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b""
            if self._is_probe(head, body):
                writer.write(self._probe_answer(head))
                continue
            served += 1
            exchange = Exchange(len(self.exchanges) + 1, served, head, body, writer)
            self.exchanges.append(exchange)
            script = asyncio.create_task(self.script(exchange))
            gone = asyncio.create_task(self._gone(reader))
            await asyncio.wait({script, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not script.done():
                script.cancel()
                self.abandoned += 1
                return
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            script.result()
            await writer.drain()
            if writer.is_closing():
                return

    @staticmethod
    async def _gone(reader: asyncio.StreamReader) -> None:
        """Returns when the peer closes; a peer that waits for an answer sends nothing else."""
        while not reader.at_eof() and reader.exception() is None:  # noqa: ASYNC110  a stream reader has no event
            await asyncio.sleep(0.005)

    def _is_probe(self, head: bytes, body: bytes) -> bool:
        looks = (b"GET /health", b"GET /metrics", b"GET /is_paused", b"GET /v1/models")
        return head.startswith(looks) or b'"prompt":"a","max_tokens":1' in body

    def _probe_answer(self, head: bytes) -> bytes:
        if head.startswith(b"GET /health"):
            return answer(200 if self.healthy else 503, b"")
        if not self.generates or not head.startswith((b"GET /v1/models", b"POST")):
            return answer(404, b'{"detail":"Not Found"}')
        return answer(200, b'{"data":[{"id":"tiny"}]}') if head.startswith(b"GET") else answer()


@dataclass
class Reply:
    """What a client received."""

    status: int
    headers: dict[str, str]
    body: bytes
    raw: bytes = b""

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def reason(self) -> str:
        return self.headers.get("x-router-reason", "")


class Client:
    """One raw connection to the router."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, body: bytes = b"{}", path: str = CHAT, method: str = "POST", *headers: str) -> Reply:
        self.send(body, path, method, *headers)
        return await self.receive()

    def send(self, body: bytes = b"{}", path: str = CHAT, method: str = "POST", *headers: str) -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: router", f"Content-Length: {len(body)}", *headers]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def receive(self, on_chunk: Callable[[], object] | None = None) -> Reply:
        """Read one whole response; `on_chunk` is called at each chunk."""
        async with asyncio.timeout(WAIT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
            if headers.get("transfer-encoding") == "chunked":
                body = await self._chunks(on_chunk or (lambda: None))
            else:
                body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Reply(int(first.split()[1]), headers, body, head)

    async def _chunks(self, on_chunk: Callable[[], object]) -> bytes:
        body = b""
        while size := int((await self.reader.readuntil(b"\r\n")).strip(), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
            on_chunk()
        await self.reader.readexactly(2)
        return body

    def reset(self) -> None:
        reset_connection(self.writer)

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class Stage:
    """Backends, a router in front of them, and clients; all gone when the block is left."""

    def __init__(self, *scripts: Script | Backend, **settings: Any) -> None:
        self.backends = [s if isinstance(s, Backend) else Backend(s) for s in scripts]
        self._settings = {"backend_timeout_s": WAIT_S, "policy": "round_robin", "probe_interval_s": 60.0} | settings
        self._clients: list[Client] = []
        self.router: Router
        self.port = self.admin_port = 0

    async def __aenter__(self) -> Self:
        for backend in self.backends:
            await backend.start()
        urls = self._settings.pop("backends", [backend.url for backend in self.backends])
        self.router = Router(make_config({"backends": urls, **self._settings}))
        listener, admin = bind("127.0.0.1", 0), bind("127.0.0.1", 0)
        self.port, self.admin_port = listener.getsockname()[1], admin.getsockname()[1]
        await self.router.start(listener, admin)
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()
        await self.router.stop(drain=False)
        for backend in self.backends:
            await backend.stop()

    async def client(self, port: int | None = None) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", port or self.port, limit=1 << 26))
        self._clients.append(client)
        return client

    async def ask(self, body: bytes = b"{}", path: str = CHAT, method: str = "POST", *headers: str) -> Reply:
        client = await self.client()
        return await client.ask(body, path, method, *headers)

    def states(self) -> list[str]:
        return [shard.record.state.value for shard in self.router.fleet.shards]

    def in_flight(self) -> int:
        return self.router.tally.in_flight + sum(shard.in_flight for shard in self.router.fleet.shards)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until `condition` holds; fail with `what` after a while."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not condition():  # noqa: ASYNC110  any condition
                    await asyncio.sleep(0.005)
        except TimeoutError:
            pytest.fail(f"waited {WAIT_S} s in vain until {what}")


async def serve(exchange: Exchange) -> None:
    exchange.send(answer())


async def hang(_exchange: Exchange) -> None:
    await asyncio.sleep(3600)


async def close(exchange: Exchange) -> None:
    exchange.close()


async def reset(exchange: Exchange) -> None:
    exchange.reset()


def say(data: bytes, *, then_close: bool = False) -> Script:
    """A script that sends `data`, whatever it is."""

    async def script(exchange: Exchange) -> None:
        exchange.send(data)
        if then_close:
            await exchange.writer.drain()
            exchange.close()

    return script


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    """The names above, for tests."""
    names = (Stage, Backend, answer, say, serve, hang, close, reset, settle)
    return SimpleNamespace(completion=COMPLETION, chat=CHAT, **{named.__name__: named for named in names})
