"""One connection to a backend, and the answers that come over it. `transport` opens it; nothing here does.

It knows how far the attempt on it got: whether it was reused, the request written, the head seen, the body whole.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from .failures import AttemptError, Outcome, Reached
from .wire import ResponseReader, WireError

# A server that had closed the connection says so within a round trip. What is lost later was being worked on.
STALE_WINDOW_S = 1.0
STREAM_HIGH_WATER = 1 << 20


class Keeper(Protocol):
    """The pool, as a connection sees it."""

    heard_at: float

    def put_back(self, connection: "Connection") -> None:
        """The exchange is over and the connection can be used again."""

    def forget(self, connection: "Connection") -> None:
        """The connection is gone."""


@dataclass(slots=True)
class Response:
    """An upstream answer: a whole body, or a stream whose head has come."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]  # lower-case names
    body: bytes
    stream: "BodyStream | None"
    reused: bool


@dataclass(slots=True)
class BodyStream:
    """The body of a streamed answer, as it comes."""

    _connection: "Connection"
    close_delimited: bool
    _chunks: deque[bytes] = field(default_factory=deque)
    _held: int = 0
    _ended: bool = False
    _error: AttemptError | None = None
    _waiter: "asyncio.Future[None] | None" = None

    async def next(self) -> bytes:
        """The next piece, or nothing at the end. Raises AttemptError. A cancelled wait drops the connection."""
        while not self._chunks:
            if self._error is not None:
                raise self._take_error(self._error)
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        chunk = self._chunks.popleft()
        self._held -= len(chunk)
        if not self._ended:  # afterwards the connection may be somebody else's
            self._connection.hold_back(paused=self._held > STREAM_HIGH_WATER)
        return chunk

    def _take_error(self, error: AttemptError) -> AttemptError:
        self._error = None  # raised, it holds the frames that hold this stream
        return error

    def drop(self) -> None:
        """Stop: the backend sees its connection closed at once, unless the stream had ended."""
        if not self._ended:
            self._connection.abort()

    def push(self, chunk: bytes) -> None:
        """Called by the connection."""
        if chunk:
            self._chunks.append(chunk)
            self._held += len(chunk)
            self._connection.hold_back(paused=self._held > STREAM_HIGH_WATER)
        self._wake()

    def finish(self, error: AttemptError | None) -> None:
        """Called by the connection: nothing follows."""
        self._ended = True
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Connection(asyncio.Protocol):
    """One connection to a backend, idle or with exactly one request on it."""

    __slots__ = (
        "_deadline_timer", "_future", "_loop", "_max_body", "_paused_reading", "_pool", "_reader", "_stream",
        "_transport", "_unwritten", "closed", "idle_since", "sent_at", "used",
    )  # fmt: skip

    def __init__(self, pool: Keeper, max_body: int) -> None:
        self._pool = pool
        self._max_body = max_body
        self._loop = asyncio.get_running_loop()
        self._reader = ResponseReader()
        self._transport: asyncio.Transport | None = None
        self._future: asyncio.Future[Response] | None = None
        self._stream: BodyStream | None = None
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._unwritten = False
        self._paused_reading = False
        self.closed = False
        self.used = False
        self.idle_since = 0.0
        self.sent_at = 0.0

    async def exchange(self, head: bytes, body: bytes, deadline: float) -> Response:
        """Send a request and wait for its answer, or for the head of a streamed one. Raises AttemptError."""
        if self._transport is None or self.closed:
            raise AttemptError(
                Outcome.UNREACHABLE, "closed before anything was sent", reached=Reached.CONNECTED, reused=self.used
            )
        self._reader.begin()
        future: asyncio.Future[Response] = self._loop.create_future()
        self._future = future
        self.sent_at = time.monotonic()
        self._deadline_timer = self._loop.call_later(max(0.0, deadline - self.sent_at), self._expire)
        self._transport.writelines([head, body] if body else [head])
        try:
            return await future
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            del future  # it holds the error that holds this frame: a cycle around the request's body

    def abort(self) -> None:
        """Drop the connection now; the backend stops working on what it was sent."""
        self.closed = True
        self._settle()
        if self._transport is not None:
            self._transport.abort()

    def interrupt(self, outcome: Outcome, detail: str) -> None:
        """Drop the connection although somebody may be waiting on it, who gets an AttemptError of `outcome`."""
        if self._future is None:
            self.abort()
        else:
            self._fail(outcome, detail)

    def hold_back(self, *, paused: bool) -> None:
        """Stop or go on reading, so that a slow client does not fill the memory."""
        if paused is self._paused_reading or self.closed or self._transport is None:
            return
        self._paused_reading = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        """Part of the request waits in our own buffer."""
        self._unwritten = True

    def resume_writing(self) -> None:
        """All of the request is with the kernel."""
        self._unwritten = False

    def data_received(self, data: bytes) -> None:
        """Part of the answer."""
        if self._future is None:  # an idle connection has nothing to say
            self.abort()
            return
        self._pool.heard_at = time.monotonic()
        reader = self._reader
        try:
            reader.feed(data)
        except WireError as error:
            self._fail(Outcome.INVALID, f"not HTTP: {error}")
            return
        if self._stream is None and reader.head_done and reader.status == 200 and reader.is_event_stream:  # noqa: PLR2004
            self._open_stream()
        if self._stream is not None:
            self._stream.push(reader.take())
            if reader.complete:
                self._end_exchange()
        elif reader.size > self._max_body:
            self._fail(Outcome.OVERSIZED, f"the answer is longer than {self._max_body} bytes")
        elif reader.complete:
            self._deliver()

    def eof_received(self) -> bool:
        """A clean end, which completes a body that only closing delimits."""
        if self._future is not None and self._reader.end_of_stream():
            if self._stream is not None:
                self._end_exchange()
            else:
                self._deliver()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, in whatever way."""
        self.closed = True
        self._pool.forget(self)
        if self._future is None:
            return
        prompt = time.monotonic() - self.sent_at < STALE_WINDOW_S
        stale = self.used and not self._reader.seen and prompt
        why = "connection lost" if exc is None else f"connection lost: {type(exc).__name__}"
        self._fail(Outcome.STALE_CONNECTION if stale else Outcome.BROKE, why)

    # Ends of an exchange

    def _open_stream(self) -> None:
        reader = self._reader
        self._stream = BodyStream(self, reader.close_delimited)
        self._resolve(Response(reader.status, reader.headers, b"", self._stream, self.used))

    def _deliver(self) -> None:
        reader = self._reader
        self._resolve(Response(reader.status, reader.headers, reader.take(), None, self.used))
        self._end_exchange()

    def _resolve(self, response: Response) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(response)

    def _expire(self) -> None:
        self._fail(Outcome.HUNG, "no complete answer before the deadline")

    def _fail(self, outcome: Outcome, detail: str) -> None:
        error = self._error(outcome, detail)
        if self._stream is not None:
            self._stream.finish(error)
        elif self._future is not None and not self._future.done():
            self._future.set_exception(error)
        self.abort()

    def _end_exchange(self) -> None:
        if self._stream is not None:
            self._stream.finish(None)
        self._settle()
        reader = self._reader
        if reader.keep_alive and not reader.surplus and not self.closed and not self._has_unsent():
            self.hold_back(paused=False)
            self.used = True
            self._pool.put_back(self)
        else:
            self.abort()

    def _settle(self) -> None:
        self._future = None
        self._stream = None
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None

    def _has_unsent(self) -> bool:
        """Whether part of the request has not left the process. A closed transport no longer knows."""
        if self.closed or self._transport is None:
            return self._unwritten
        return self._transport.get_write_buffer_size() > 0

    def _error(self, outcome: Outcome, detail: str) -> AttemptError:
        sent = Reached.CONNECTED if self._has_unsent() else Reached.WRITTEN
        reached = Reached.HEAD if self._reader.head_done else sent
        return AttemptError(outcome, detail, reached=reached, reused=self.used)
