"""Upstream bytes to one response, without I/O: the httptools parser and what must be known around it.

The parser is strict about framing (a doubled Content-Length, a length next to chunks, a bad chunk size are errors).
It does not see the end of a body that is delimited by closing, and it does not bound a head; both are done here.
"""

from typing import Any

import httptools

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
