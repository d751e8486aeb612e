"""HTTP/1.1 as values: bytes in, events out, and whole messages back into bytes.

Pure: no socket, no clock. The limits on responses are those of aiohttp's client parser (aiohttp 3.14, measured with
NeMo-Gym 0.4.0), because what that parser rejects costs a rollout whatever the bytes meant.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any

import httptools

from gymproof.validators.raw_answer import LINE_LIMIT, LINES_LIMIT

Headers = tuple[tuple[bytes, bytes], ...]


class Mark(Enum):
    """Where a message begins and ends in a stream of events."""

    BEGIN = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The request line and headers, as they came."""

    method: str
    path: str
    headers: Headers


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The status and headers, as they came. Interim (1xx) heads are never shown."""

    status: int
    headers: Headers

    @property
    def close_delimited(self) -> bool:
        """Whether only the end of the connection ends the body."""
        if self.status in {204, 304}:
            return False
        chunked = b"chunked" in header(self.headers, b"transfer-encoding").lower()
        return not chunked and not any(name.lower() == b"content-length" for name, _ in self.headers)


@dataclass(frozen=True, slots=True)
class Bad:
    """The bytes are no HTTP that the client would accept; nothing after this is followed."""

    why: str


Event = Mark | RequestHead | ResponseHead | bytes | Bad  # bytes: a piece of the entity body, de-chunked


def header(headers: Headers, name: bytes) -> bytes:
    """The first value of header `name` (lower case), b"" if there is none."""
    return next((value for key, value in headers if key.lower() == name), b"")


class _Follower:
    """Callbacks of httptools, turned into a list of events."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._headers: list[tuple[bytes, bytes]] = []
        self._dead = False
        self._parser: Any = None

    def feed(self, data: bytes) -> list[Event]:
        """The events in the next bytes of the stream. After a `Bad` there are none."""
        if self._dead:
            return []
        self._events = []
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._bad("the connection switches protocols")
        except httptools.HttpParserError as error:
            self._bad(str(error.__context__ or error))
        return self._events

    def _bad(self, why: str) -> None:
        self._dead = True
        self._events.append(Bad(why))

    def on_message_begin(self) -> None:
        self._headers = []
        self._events.append(Mark.BEGIN)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._events.append(body)

    def on_message_complete(self) -> None:
        self._events.append(Mark.END)


class RequestFollower(_Follower):
    """Follows the requests of one connection."""

    def __init__(self) -> None:
        super().__init__()
        self._url = b""
        self._parser = httptools.HttpRequestParser(self)

    def on_message_begin(self) -> None:
        """Forget the request before."""
        super().on_message_begin()
        self._url = b""

    def on_url(self, url: bytes) -> None:
        """Collect the target, which may come in pieces."""
        self._url += url

    def on_headers_complete(self) -> None:
        """Show the head."""
        method = self._parser.get_method().decode()
        self._events.append(RequestHead(method, self._url.decode("latin-1"), tuple(self._headers)))


class ResponseFollower(_Follower):
    """Follows the responses of one connection as strictly, and as leniently, as aiohttp's client does."""

    def __init__(self) -> None:
        super().__init__()
        self._reason_bytes = 0
        self._interim = False
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    def on_message_begin(self) -> None:
        """Begin a response, unless it began already with an interim one."""
        if self._interim:
            self._headers = []
        else:
            super().on_message_begin()
        self._interim = False
        self._reason_bytes = 0

    def on_status(self, reason: bytes) -> None:
        """Limit the reason phrase."""
        self._reason_bytes += len(reason)
        if self._reason_bytes > LINE_LIMIT:
            raise ValueError(f"a reason phrase over {LINE_LIMIT} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Limit the header lines."""
        super().on_header(name, value)
        if len(name) + len(value) > LINE_LIMIT:
            raise ValueError(f"a header line over {LINE_LIMIT} bytes: {name[:40]!r}")
        if len(self._headers) > LINES_LIMIT:
            raise ValueError(f"more than {LINES_LIMIT} header lines")
        if b"\0" in value:
            raise ValueError(f"a NUL byte in the header {name[:40]!r}")

    def on_headers_complete(self) -> None:
        """Show the head of a final response."""
        status = self._parser.get_status_code()
        self._interim = status < 200  # noqa: PLR2004 - RFC 9110, 15.2
        if not self._interim:
            self._events.append(ResponseHead(status, tuple(self._headers)))

    def on_message_complete(self) -> None:
        """End a final response."""
        if not self._interim:
            super().on_message_complete()


@dataclass(frozen=True, slots=True)
class Request:
    """One whole request; `wire` is how it came, byte for byte."""

    head: RequestHead
    body: bytes
    wire: bytes


class Framing(StrEnum):
    """How the end of a response body is marked."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Response:
    """One whole response."""

    status: int
    headers: Headers
    body: bytes

    def head(self, framing: Framing = Framing.LENGTH, extra: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
        """The status line and headers with this framing in place of the original one, and more header lines."""
        ours: dict[Framing, Headers] = {
            Framing.LENGTH: ((b"content-length", b"%d" % len(self.body)),) if self.status not in {204, 304} else (),
            Framing.CHUNKED: ((b"transfer-encoding", b"chunked"),),
            Framing.CLOSE: ((b"connection", b"close"),),
        }
        replaced = {b"content-length", b"transfer-encoding", b"connection"}
        kept = [(name, value) for name, value in self.headers if name.lower() not in replaced]
        lines = [b"HTTP/1.1 %d -" % self.status]
        lines += [name + b": " + value for name, value in (*kept, *ours[framing], *extra)]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def halves(self, framing: Framing = Framing.LENGTH) -> tuple[bytes, bytes]:
        """The body as it goes on the wire, in two parts; a chunked one is divided between two chunks."""
        middle = len(self.body) // 2
        first, second = self.body[:middle], self.body[middle:]
        if framing is Framing.CHUNKED:
            return _chunk(first), _chunk(second) + b"0\r\n\r\n"
        return first, second

    def wire(self) -> bytes:
        """The whole response with a Content-Length."""
        return self.head() + self.body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


@dataclass
class RequestReader:
    """Collects the next request of a connection."""

    _follower: RequestFollower = field(default_factory=RequestFollower)
    _head: RequestHead | None = None
    _body: bytearray = field(default_factory=bytearray)
    _wire: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Request | Bad | None:
        """The request once it is whole, what is wrong with it, or None while more has to come."""
        self._wire += data
        for event in self._follower.feed(data):
            match event:
                case RequestHead():
                    self._head = event
                case bytes():
                    self._body += event
                case Mark.END if self._head is not None:
                    return Request(self._head, bytes(self._body), bytes(self._wire))
                case Bad():
                    return event
                case _:
                    pass
        return None


@dataclass
class ResponseReader:
    """Collects one response, and says how far it got."""

    head: ResponseHead | None = None
    bad: Bad | None = None
    whole: bool = False
    _follower: ResponseFollower = field(default_factory=ResponseFollower)
    _body: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> None:
        """Take the next bytes in. More bytes than one response are bad."""
        for event in self._follower.feed(data):
            match event:
                case ResponseHead():
                    self.head = event
                case bytes():
                    self._body += event
                case Bad():
                    self.bad = event
                case Mark.BEGIN if self.whole:
                    self.bad = Bad("bytes after the end of the response")
                case Mark.END:
                    self.whole = True
                case _:
                    pass

    def end(self) -> None:
        """The peer has closed in an orderly way, which ends a close-delimited body."""
        self.whole = self.whole or (self.head is not None and self.head.close_delimited)

    def response(self) -> Response:
        """The response; only once it is whole."""
        if self.head is None or not self.whole:
            raise ValueError("the response is not whole")
        return Response(self.head.status, self.head.headers, bytes(self._body))
