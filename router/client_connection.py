"""One client connection: bytes to calls, answers to bytes. The listening counterpart of `transport`.

Requests of one connection are served one after the other. A client that closes, in whichever direction, has left: its
call is cancelled at once, and with it the upstream.
"""

import asyncio
import time
from http import HTTPStatus
from typing import Protocol, cast

from .answers import Answer
from .calls import OpenStream
from .events import LOG
from .failures import ClientGoneError
from .intake import ListenerLimits, internal_error, too_slow
from .wire import Message, RequestReader

# How long the rest of a request that was turned down is read and thrown away, so that its sender sees the answer: until
# nothing comes any more, and not for ever.
LINGER_QUIET_S = 0.5
LINGER_S = 5.0
MAX_PIPELINED = 16
STATUS_LINES = {int(status): b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Host(Protocol):
    """The listener, as a connection sees it."""

    limits: ListenerLimits
    draining: bool

    def opened(self, connection: "ClientConnection") -> None:
        """A connection exists."""

    def lost(self, connection: "ClientConnection") -> None:
        """It exists no more."""

    def admit(self, message: Message) -> Answer | None:
        """The answer to a request that is not taken."""

    def refused(self, answer: Answer) -> None:
        """A request was turned down."""

    async def serve(self, message: Message, open_stream: OpenStream) -> Answer | None:
        """The answer, or None when it was streamed."""


class ClientConnection(asyncio.Protocol):
    """A connection from Gym, or from anybody."""

    __slots__ = (
        "_active",
        "_host",
        "_loop",
        "_paused",
        "_reader",
        "_stream",
        "_task",
        "_timer",
        "_transport",
        "_unsent",
        "_writable",
    )

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._reader = RequestReader(host.limits, host.admit)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None  # the call under way
        self._stream: StreamToClient | None = None  # its streamed answer, once that has begun
        self._timer: asyncio.TimerHandle | None = None
        self._active = self._loop.time()  # when bytes last came, or an answer last went
        self._paused = False  # whether reading is
        self._unsent = 0  # what waited to be sent at the last look
        self._writable: asyncio.Future[None] | None = None  # pending while the client does not read

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._host.opened(self)
        self._timer = self._loop.call_later(self._host.limits.client_idle_s, self._look)

    def data_received(self, data: bytes) -> None:
        """Part of a request, or several."""
        self._active = self._loop.time()
        reader = self._reader
        reader.feed(data)
        if reader.expects and self._task is None and not reader.ready:
            reader.expects = False
            self.write(CONTINUE)
        self._pump()

    def eof_received(self) -> bool:
        """The client has closed: it is gone."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        """Gone."""
        self._transport = None
        self._reader.over = True
        self._reader.ready.clear()
        self.resume_writing()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._host.lost(self)

    def pause_writing(self) -> None:
        """The client reads more slowly than it is written to."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """It has caught up, or is gone."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # Serving

    @property
    def idle(self) -> bool:
        """No request has begun that has not been answered."""
        return self._task is None and self._reader.partial is None and not self._reader.ready

    def close(self) -> None:
        """Close once everything that was written has gone out."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    def _pump(self) -> None:
        """Serve the next request, if it is its turn."""
        ready = self._reader.ready
        while ready and self._task is None:
            message = ready.popleft()
            if message.refused is None:
                self._task = self._loop.create_task(self._serve(message))
            else:
                self._host.refused(message.refused)
                self._send(message, message.refused)
                self._answered(message)
        self._hold_back(paused=len(ready) > MAX_PIPELINED)

    def _hold_back(self, *, paused: bool) -> None:
        if paused is self._paused or self._transport is None:
            return
        self._paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    async def _serve(self, message: Message) -> None:
        async def open_stream(status: int, headers: tuple[tuple[str, str], ...]) -> "StreamToClient":
            self._stream = StreamToClient(self, message, self._host.limits.client_idle_s)
            self._stream.begin(self._head(message, status, headers))
            return self._stream

        try:
            answer = await self._host.serve(message, open_stream)
        except asyncio.CancelledError:
            self._task = None
            self.abort()
            raise
        except Exception:  # noqa: BLE001  a bug must not become a client that waits for ever
            LOG.exception("unexpected error")
            answer = internal_error()
        self._task = None
        if answer is not None and self._stream is None:
            self._send(message, answer)
        elif self._stream is None or not self._stream.ended:
            self.abort()  # a stream that cannot be ended properly can only be cut
        self._stream = None
        self._answered(message)
        self._pump()

    def _answered(self, message: Message) -> None:
        """What follows an answer: the next request, or the end of the connection."""
        self._active = self._loop.time()
        reader = self._reader
        if not message.whole and not self._host.draining:
            self._linger(self._active + LINGER_S)
        elif not message.keep_alive or self._host.draining or (reader.over and not reader.ready):
            reader.over = True
            reader.ready.clear()
            self.close()

    def _linger(self, until: float) -> None:
        """Close at `until`, or once nothing has come for a while."""
        if self._loop.time() >= min(until, self._active + LINGER_QUIET_S):
            self.close()
        else:
            self._loop.call_later(LINGER_QUIET_S, self._linger, until)

    def _send(self, message: Message, answer: Answer) -> None:
        head = self._head(message, answer.status, answer.headers)
        body = b"" if message.method == b"HEAD" else answer.body
        if self._transport is not None:
            self._transport.writelines([head, b"Content-Length: %d\r\n\r\n" % len(answer.body), body])

    def _head(self, message: Message, status: int, headers: tuple[tuple[str, str], ...]) -> bytes:
        """The status line and the headers, without the empty line."""
        lines = [STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status]
        for name, value in headers:
            lines.append(f"{name}: {value}\r\n".encode("latin-1"))
        if not message.keep_alive or self._host.draining:
            lines.append(b"Connection: close\r\n")
        elif message.http_1_0:
            lines.append(b"Connection: keep-alive\r\n")
        return b"".join(lines)

    def write(self, data: bytes) -> None:
        """Write to the client, if it is still there."""
        if self._transport is not None:
            self._transport.write(data)

    async def drained(self, idle_s: float) -> None:
        """Wait until the client has read enough. Raises ClientGoneError if it is gone, or reads nothing."""
        if self._writable is not None:
            try:
                async with asyncio.timeout(idle_s):
                    await self._writable
            except TimeoutError:
                raise ClientGoneError("the client stopped reading") from None
        if self._transport is None or self._transport.is_closing():
            raise ClientGoneError("the client closed its connection")

    # Clients that neither send nor read

    def _look(self) -> None:
        """Looked at once in `client_idle_s` or so: whether anybody is there."""
        idle_s, partial = self._host.limits.client_idle_s, self._reader.partial
        quiet = self._loop.time() - self._active
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        stuck, self._unsent = unsent > 0 and unsent == self._unsent, unsent
        if self._task is None and stuck:
            self.abort()
        elif self._task is None and not unsent and quiet >= idle_s:
            self._dismiss()
        elif partial is not None and time.monotonic() - partial.begun > self._host.limits.deadline_s:
            self._dismiss()  # it trickles
        self._timer = self._loop.call_later(idle_s if quiet >= idle_s else idle_s - quiet, self._look)

    def _dismiss(self) -> None:
        if self._reader.partial is None:
            self.close()
            return
        self._reader.give_up(too_slow())
        self._pump()


class StreamToClient:
    """A streamed answer on its way: chunked, or delimited by closing for an HTTP/1.0 client."""

    def __init__(self, connection: ClientConnection, message: Message, idle_s: float) -> None:
        self._connection = connection
        self._chunked = not message.http_1_0
        self._idle_s = idle_s
        self.ended = False
        if not self._chunked:
            message.keep_alive = False

    def begin(self, head: bytes) -> None:
        """The status line goes out."""
        self._connection.write(head + (b"Transfer-Encoding: chunked\r\n\r\n" if self._chunked else b"\r\n"))

    async def write(self, chunk: bytes) -> None:
        """Pass a piece on. Raises ClientGoneError."""
        self._connection.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._chunked else chunk)
        await self._connection.drained(self._idle_s)

    async def end(self) -> None:
        """End it properly. Raises ClientGoneError."""
        if self._chunked:
            self._connection.write(b"0\r\n\r\n")
        self.ended = True
        await self._connection.drained(self._idle_s)
