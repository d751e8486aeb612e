"""Shards that are nothing but a recorder: they keep what they were sent byte for byte, and answer what a probe says."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import orjson

from ...asking import CHAT_PATH, MODEL
from ...http1 import Bad, Framing, Headers, Request, RequestReader, Response, header
from ...ports import PortLease
from ...tags import call_of
from ...waiting import wait_until

COMPLETIONS, RESPONSES, TOKENIZE, MODELS, HEALTH = (
    *("/v1/completions", "/v1/responses", "/tokenize"),
    *("/v1/models", "/health"),
)
JSON: Headers = ((b"content-type", b"application/json"),)
_EVENT_STREAM: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"),)
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
NAMES = "ABCDEFGH"
_BACKLOG = 2048
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_CHOICE = {"index": 0, "finish_reason": "stop", "logprobs": None}
_TEXT = {"type": "output_text", "text": "ok", "annotations": []}
_OUTPUT = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [_TEXT]}
_MADE = {"created": 1, "model": MODEL, "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
# What each path answers, as vLLM does in shape; other paths get its 404.
USUAL: dict[str, dict[str, object]] = {
    CHAT_PATH: {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        **_MADE,
        "choices": [{**_CHOICE, "message": {"role": "assistant", "content": "ok"}}],
    },
    COMPLETIONS: {"id": "cmpl-1", "object": "text_completion", **_MADE, "choices": [{**_CHOICE, "text": "ok"}]},
    RESPONSES: {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": MODEL,
        "status": "completed",
        "output": [_OUTPUT],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    },
    TOKENIZE: {"count": 2, "max_model_len": 4096, "tokens": [104, 105], "token_strs": None},
    MODELS: {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "vllm"}]},
}


@dataclass(eq=False, slots=True)
class Delivery:
    """One whole request that reached a shard, on connection number `connection` of it. Times are monotonic seconds."""

    shard: str
    connection: int
    request: Request
    begun: float
    ended: float | None = None
    left: bool = False  # the router closed the connection before the answer was whole

    @property
    def call(self) -> str:
        """The tag that it carries, "" for one of the router's own."""
        return call_of(self.request.body)

    def __str__(self) -> str:
        head = self.request.head
        end = "not ended" if self.ended is None else f"{'left' if self.left else 'answered'} after {self.took:.2f} s"
        return f"shard {self.shard} connection {self.connection}: {head.method} {head.path}, {end}"

    @property
    def took(self) -> float:
        """Seconds until it ended, or so far."""
        return (time.monotonic() if self.ended is None else self.ended) - self.begun


Send: TypeAlias = Callable[[bytes], None]
Respond: TypeAlias = Callable[[Delivery, Send], Awaitable[None]]


def plain(answer: Response, *, after_s: float = 0.0) -> Respond:
    """Answer everything with this."""

    async def respond(_delivery: Delivery, send: Send) -> None:
        await asyncio.sleep(after_s)
        send(answer.wire())

    return respond


def streamed(events: Iterable[bytes], every_s: float) -> Respond:
    """Answer everything with these events, each in a chunk of its own."""

    async def respond(_delivery: Delivery, send: Send) -> None:
        send(Response(200, _EVENT_STREAM, b"").head(Framing.CHUNKED))
        for event in events:
            send(b"%x\r\n%b\r\n" % (len(event), event))
            await asyncio.sleep(every_s)
        send(b"0\r\n\r\n")

    return respond


def ok(path: str = CHAT_PATH, headers: Headers = ()) -> Response:
    """The usual answer of a path."""
    return Response(200, (*JSON, *headers), orjson.dumps(USUAL[path]))


async def usual(delivery: Delivery, send: Send) -> None:
    """What a vLLM server would say, in shape."""
    path = delivery.request.head.path.partition("?")[0]
    if path == HEALTH:
        send(Response(200, (), b"").wire())
    elif path in USUAL:
        send(ok(path).wire())
    else:
        send(Response(404, JSON, b'{"detail":"Not Found"}').wire())


_GONE_WITHIN_S = 5.0
_ACCEPT_TURNS = 4  # of the event loop, from accepting a socket to a connection that is made


@dataclass(eq=False)
class Backend:
    """A shard on a port that stays its own while it is down. `scripts` answers calls by tag, `usual` the others."""

    name: str
    port: int
    scripts: dict[str, Respond]
    deliveries: list[Delivery] = field(default_factory=list)
    connections: "dict[_Connection, None]" = field(default_factory=dict)
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where it is, without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"

    async def up(self) -> None:
        """Listen, if it does not. Raises OSError."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port, backlog=_BACKLOG)

    async def down(self) -> None:
        """Be gone at once: the port refuses, what was connected is reset."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for connection in tuple(self.connections):
                connection.abort()
            await server.wait_closed()
            for _ in range(_ACCEPT_TURNS):  # what had been accepted, and was no connection yet, comes and is reset
                await asyncio.sleep(0)
            await wait_until(lambda: not self.connections, _GONE_WITHIN_S)

    @property
    def listens(self) -> bool:
        """Whether it takes connections."""
        return self._server is not None


class _Connection(asyncio.Protocol):
    """One connection of the router; requests are answered one after the other."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._number = next(backend.numbers)
        self._reader = RequestReader()
        self._head = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note it, unless the shard went down while it was accepted."""
        self._transport = cast("asyncio.Transport", transport)
        self._backend.connections[self] = None
        if not self._backend.listens:
            self.abort()

    def abort(self) -> None:
        """Reset it."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Collect a request, and answer it once it is whole."""
        self._invite(data)
        request = self._reader.feed(data)
        if isinstance(request, Bad):
            self._transport.write(Response(400, JSON, orjson.dumps({"detail": request.why})).wire())
            self._transport.close()
        elif request is not None:
            self._reader, self._head = RequestReader(), b""
            delivery = Delivery(self._backend.name, self._number, request, time.monotonic())
            self._backend.deliveries.append(delivery)
            self._task = asyncio.ensure_future(self._answer(delivery))

    def _invite(self, data: bytes) -> None:
        """Ask for the body of a request that waits for that."""
        if b"\r\n\r\n" in self._head:
            return
        self._head += data
        head, found, body = self._head.partition(b"\r\n\r\n")
        if found and not body and b"expect: 100-continue" in head.lower():
            self._transport.write(_CONTINUE)

    async def _answer(self, delivery: Delivery) -> None:
        respond = self._backend.scripts.get(delivery.call, usual)
        try:
            await respond(delivery, self._send)
        finally:
            delivery.left = self._transport.is_closing()
            delivery.ended = time.monotonic()
        if b"close" in header(delivery.request.head.headers, b"connection").lower():
            self._transport.close()

    def _send(self, data: bytes) -> None:
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Stop what nobody waits for."""
        self._backend.connections.pop(self, None)
        if self._task is not None:
            self._task.cancel()


@asynccontextmanager
async def listening(count: int, scripts: dict[str, Respond], *, up: bool = True) -> AsyncIterator[Sequence[Backend]]:
    """Shards A, B, ... that answer by the same scripts."""
    with ExitStack() as leases:
        backends = [Backend(name, leases.enter_context(PortLease()).port, scripts) for name in NAMES[:count]]
        try:
            for backend in backends if up else ():
                await backend.up()
            yield backends
        finally:
            for backend in backends:
                await backend.down()
