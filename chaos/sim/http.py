"""An HTTP/1.1 server that shows uvicorn's face: its header order, its keep-alive, its 400 to what is no HTTP.

One request of a connection is handled at a time, in a task of its own; when the peer closes, that task is cancelled.
"""

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import parse_qsl

import httptools

JSON = "application/json"
_INVALID = b"Invalid HTTP request received."


@dataclass(slots=True)
class Request:
    """One whole request; header names are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    keep_alive: bool


@dataclass(slots=True)
class Exchange:
    """The answering half of one request; `on_end(status, body sha256, length)` comes before the last bytes."""

    transport: asyncio.Transport
    keep_alive: bool
    number: str = ""  # its id in the shard's log
    on_end: Callable[[int, str, int], None] | None = None
    ended: bool = False
    streaming: bool = False
    _hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    _size: int = 0

    def reply(self, status: int, body: bytes, content_type: str | None = JSON, *, allow: str = "") -> None:
        """Send a whole answer."""
        lines = [f"allow: {allow}"] if allow else []
        lines += [f"content-length: {len(body)}"]
        lines += [f"content-type: {content_type}"] if content_type else []
        self._hash.update(body)
        self._size = len(body)
        self._finish(status, _head(status, [*lines, "vary: Origin"], self.keep_alive) + body)

    def start_stream(self) -> None:
        """Send the head of an event stream."""
        self.streaming = True
        lines = ["content-type: text/event-stream; charset=utf-8", "vary: Origin", "transfer-encoding: chunked"]
        self.transport.write(_head(200, lines, self.keep_alive))

    def send(self, event: bytes) -> None:
        """Send one event, as one chunk."""
        self._hash.update(event)
        self._size += len(event)
        self.transport.write(b"%x\r\n%b\r\n" % (len(event), event))

    def end_stream(self) -> None:
        """Send the last chunk."""
        self._finish(200, b"0\r\n\r\n")

    def _finish(self, status: int, data: bytes) -> None:
        if self.on_end:
            self.on_end(status, self._hash.hexdigest(), self._size)
        self.ended = True
        self.transport.write(data)


def _head(status: int, lines: list[str], keep_alive: bool) -> bytes:
    first = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"date: {_date(int(time.time()))}", "server: uvicorn"]
    last = [] if keep_alive else ["connection: close"]
    return "\r\n".join([*first, *lines, *last, "", ""]).encode("latin-1")


@lru_cache(maxsize=1)
def _date(now: int) -> str:
    return formatdate(now, usegmt=True)


Handler = Callable[[Request, Exchange], Awaitable[None]]


class Connection(asyncio.Protocol):
    """One accepted connection."""

    transport: asyncio.Transport

    def __init__(self, handler: Handler, server: "Server", keep_alive_s: float) -> None:
        self._handler = handler
        self._server = server
        self._keep_alive_s = keep_alive_s
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Uvicorn sets no timer here: a connection that never sends is never closed."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker: TCP transports only
        self.transport = transport
        self._server.add(self)

    def data_received(self, data: bytes) -> None:
        """Parse; what is no HTTP gets uvicorn's 400 and is closed."""
        self._stop_idling()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError:
            head = _head(400, ["content-type: text/plain; charset=utf-8", f"content-length: {len(_INVALID)}"], False)
            self.transport.write(head + _INVALID)
            self.transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        """The peer left, or we closed: what still works for it ends."""
        self._stop_idling()
        self._server.remove(self)
        self._queue.clear()
        if self._task:
            self._task.cancel()

    # What httptools calls.

    def on_message_begin(self) -> None:
        """A request line begins."""
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        """A part of the request target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if self._headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A part of the body, de-chunked."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        path, _, query = self._url.decode("latin-1").partition("?")
        request = Request(
            method=self._parser.get_method().decode(),
            path=path,
            query=dict(parse_qsl(query)),
            headers=self._headers,
            body=b"".join(self._body),
            keep_alive=self._parser.should_keep_alive(),
        )
        self._queue.append(request)
        self._next()

    @property
    def busy(self) -> bool:
        """Whether a request is being handled."""
        return self._task is not None

    def _next(self) -> None:
        if self._queue and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._serve(self._queue.popleft()))

    async def _serve(self, request: Request) -> None:
        exchange = Exchange(self.transport, request.keep_alive)
        try:
            await self._handler(request, exchange)
        except asyncio.CancelledError:
            return
        except Exception:
            self.transport.abort()
            raise
        self._task = None
        if not request.keep_alive:
            self.transport.close()
        if self.transport.is_closing():
            return
        if not self._queue:
            self._idle = asyncio.get_running_loop().call_later(self._keep_alive_s, self.transport.close)
        self._next()

    def _stop_idling(self) -> None:
        if self._idle:
            self._idle.cancel()
            self._idle = None


class Server:
    """A listening socket on loopback and its connections."""

    def __init__(self, handler: Handler, *, keep_alive_s: float) -> None:
        self._handler = handler
        self._keep_alive_s = keep_alive_s
        self._connections: dict[Connection, None] = {}  # in order: a run in virtual time repeats itself
        self.empty = asyncio.Event()  # no connection is open
        self.empty.set()
        self._listener: asyncio.Server | None = None

    async def listen(self, port: int) -> None:
        """Serve on 127.0.0.1, 0 for any port; a taken one raises OSError."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._connection, "127.0.0.1", port, backlog=2048)

    @property
    def port(self) -> int:
        """Where it listens."""
        if self._listener is None:
            raise ValueError("it does not listen")
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    def _connection(self) -> Connection:
        return Connection(self._handler, self, self._keep_alive_s)

    def add(self, connection: Connection) -> None:
        """One more is open."""
        self._connections[connection] = None
        self.empty.clear()

    def remove(self, connection: Connection) -> None:
        """One has ended."""
        self._connections.pop(connection, None)
        if not self._connections:
            self.empty.set()

    def stop_listening(self) -> None:
        """Take no new connection, and close those that are idle."""
        if self._listener:
            self._listener.close()
        for connection in list(self._connections):
            if not connection.busy:
                connection.transport.close()

    def stop(self) -> None:
        """Stop listening and reset what is open."""
        self.stop_listening()
        for connection in list(self._connections):
            connection.transport.abort()
