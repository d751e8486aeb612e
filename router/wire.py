"""HTTP/1.1 bytes to whole messages, without I/O: the httptools parsers, and what must be known around them.

`ResponseReader` reads what a backend sends, `RequestReader` what a client sends. The parsers are strict about framing
(a doubled Content-Length, a length next to chunks, a bad chunk size are errors). They do not see the end of a body that
is delimited by closing, and they bound neither heads nor bodies; both are done here.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import httptools

from .answers import Answer
from .headers import HeadFilter
from .intake import ListenerLimits, body_too_large, head_too_large, malformed, unknown_method, upgrade_refused
from .surface import origin_form

MAX_HEAD_BYTES = 1 << 20
EVENT_STREAM = b"text/event-stream"
_FRAMED = frozenset({b"content-length", b"transfer-encoding"})


class WireError(Exception):
    """The peer broke HTTP."""


class ResponseReader:
    """Reads the responses of one connection, one at a time; `begin` before each."""

    __slots__ = (
        "_framed", "_head_bytes", "_parser", "_parts", "complete", "head_done", "headers", "keep_alive", "seen",
        "size", "status", "surplus",
    )  # fmt: skip

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        """Forget the previous response."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self.size = 0  # body bytes so far
        self.seen = False  # any byte at all
        self.head_done = False
        self.complete = False
        self.keep_alive = False
        self.surplus = False  # bytes after the response: the connection is out of step
        self._framed = False
        self._head_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take what the socket gave. Raises WireError, unless the response was whole before the error."""
        self.seen = True
        if not self.head_done:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self.complete:
                raise WireError(str(error)) from None
            self.surplus = True
        except httptools.HttpParserUpgrade:
            raise WireError("the backend wants to change protocols") from None
        if not self.head_done and self._head_bytes > MAX_HEAD_BYTES:
            raise WireError(f"the head is longer than {MAX_HEAD_BYTES} bytes")

    def end_of_stream(self) -> bool:
        """The peer closed cleanly: whether that completes the response (a body delimited by closing)."""
        if self.head_done and not self._framed:
            self.complete = True
        return self.complete

    def take(self) -> bytes:
        """The body bytes that have come since the last call."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def is_event_stream(self) -> bool:
        """Whether the head announces server-sent events."""
        return any(name == b"content-type" and EVENT_STREAM in value.lower() for name, value in self.headers)

    @property
    def close_delimited(self) -> bool:
        """Whether only closing ends the body."""
        return not self._framed

    # Called by the parser.

    def on_message_begin(self) -> None:
        """A response starts."""
        if self.complete:
            self.surplus = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line."""
        if self.complete:
            return
        name = name.lower()
        self.headers.append((name, value))
        if name in _FRAMED:
            self._framed = True

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if self.complete:
            return
        self.status = self._parser.get_status_code()
        self.head_done = self.status >= 200  # noqa: PLR2004  1xx is only a herald

    def on_body(self, data: bytes) -> None:
        """Part of the body."""
        if not self.complete:
            self._parts.append(data)
            self.size += len(data)

    def on_message_complete(self) -> None:
        """The response is whole, or a 1xx is over."""
        if self.complete:
            return
        if self.head_done:
            self.complete = True
            self.keep_alive = self._parser.should_keep_alive()
            return
        self.headers = []
        self._framed = False


class Message:
    """One request. `refused` is the router's own answer to it, if it has one."""

    __slots__ = (
        "_parts",
        "begun",
        "head",
        "http_1_0",
        "keep_alive",
        "method",
        "refused",
        "size",
        "started",
        "target",
        "whole",
    )

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.method = b""
        self.target = b""
        self.head = HeadFilter()
        self._parts: list[bytes] = []
        self.size = 0
        self.whole = False
        self.http_1_0 = False
        self.keep_alive = False
        self.started = 0.0  # time.monotonic() when the head was whole; 0 before
        self.refused: Answer | None = None

    def add(self, body: bytes) -> None:
        """Part of the body."""
        self._parts.append(body)
        self.size += len(body)

    def body(self) -> bytes:
        """The body, as one piece."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def refuse(self, answer: Answer) -> None:
        """Turn it down; its body is no longer wanted. The first refusal stands."""
        self.refused = self.refused or answer
        self._parts.clear()


class RequestReader:
    """Reads the requests of one connection. `admit` may turn down a request whose head is whole.

    A request that is turned down comes out at once, without the rest of its body; after that nothing more is read.
    """

    __slots__ = ("_admit", "_head_bytes", "_limits", "_parser", "expects", "over", "partial", "ready")

    def __init__(self, limits: ListenerLimits, admit: Callable[[Message], Answer | None]) -> None:
        self._limits = limits
        self._admit = admit
        self._parser: Any = httptools.HttpRequestParser(self)
        self._head_bytes = 0
        self.partial: Message | None = None  # begun, not whole
        self.ready: deque[Message] = deque()  # whole, or turned down
        self.expects = False  # the client waits for "100 Continue" before it sends a body
        self.over = False  # nothing more will be read

    def feed(self, data: bytes) -> None:
        """Take what the socket gave."""
        if self.over:
            return
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.over = True  # what follows is another protocol, or a body that the parser took for one
        except httptools.HttpParserInvalidMethodError:
            self._turn_down(unknown_method(data))
        except httptools.HttpParserError:
            self._turn_down(malformed())
        partial = self.partial
        if partial is None:
            return
        if partial.refused is not None:
            self._turn_down(partial.refused)
        elif not partial.started and self._head_bytes > self._limits.max_head:
            self._turn_down(head_too_large(self._limits))

    def give_up(self, answer: Answer) -> None:
        """Turn down the request that is being received."""
        self._turn_down(answer)

    def _turn_down(self, answer: Answer) -> None:
        message = self.partial or Message()
        message.refuse(answer)
        self.ready.append(message)
        self.partial = None
        self.expects = False
        self.over = True

    # Called by the parser

    def on_message_begin(self) -> None:
        """A request starts."""
        self.partial = Message()

    def on_url(self, url: bytes) -> None:
        """Part of the target."""
        if self.partial is not None:
            self.partial.method = self._parser.get_method()
            self.partial.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line."""
        if self.partial is not None:
            self.partial.head.add(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        message = self.partial
        if message is None:
            return
        message.started = time.monotonic()
        message.target = origin_form(message.target)
        message.http_1_0 = self._parser.get_http_version() == "1.0"
        if (answer := self._admit(message)) is not None:
            message.refuse(answer)
        self.expects = bool(message.head.expect) and message.refused is None

    def on_body(self, body: bytes) -> None:
        """Part of the body."""
        message = self.partial
        self.expects = False
        if message is None or message.refused is not None:
            return
        message.add(body)
        if message.size > self._limits.max_body:
            message.refuse(body_too_large(self._limits))

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._head_bytes = 0
        self.expects = False
        message, self.partial = self.partial, None
        if message is not None:
            message.whole = True
            message.keep_alive = self._parser.should_keep_alive() and message.head.size <= self._limits.max_head
            if self._parser.should_upgrade():
                message.keep_alive = False
                message.refuse(upgrade_refused())
            self.ready.append(message)
