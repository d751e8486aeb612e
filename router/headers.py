"""Which headers pass, in either direction.

Requests go by a deny-list: whatever belongs to one hop stays, everything else is the user's. Responses go by an
allow-list: Gym's parser turns a long line, many lines or a doubled Content-Length into a crash.
"""

from collections.abc import Sequence
from typing import TypeAlias

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"transfer-encoding", b"upgrade",
})  # fmt: skip
PERSISTENCE = frozenset({b"close", b"keep-alive", b""})
# Host and Content-Length are made anew; Expect is between the client and us.
NOT_FORWARDED = HOP_BY_HOP | {b"host", b"content-length", b"expect"}
PASSED_BACK = frozenset({
    b"content-type", b"content-encoding", b"content-language", b"cache-control", b"vary", b"x-request-id",
    b"openai-model", b"openai-organization", b"openai-processing-ms", b"openai-version",
})  # fmt: skip
MAX_PASSED_VALUE = 4096
READABLE_CODINGS = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})


class HeadFilter:
    """Takes a request's header lines one by one; keeps what is forwarded, and what the router itself must know."""

    __slots__ = ("_dropped", "_lines", "content_length", "expect", "request_id", "session", "size")

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._dropped: set[bytes] = set()
        self.size = 0  # bytes of names and values
        self.content_length = 0
        self.expect = b""
        self.request_id = b""
        self.session = b""

    def add(self, name: bytes, value: bytes) -> None:
        """One header line."""
        self.size += len(name) + len(value)
        lower = name.lower()
        if lower in NOT_FORWARDED:
            self._note(lower, value)
            return
        if lower == b"x-request-id":
            self.request_id = value
        elif lower == b"x-session-id":
            self.session = value
        elif lower == b"accept-encoding":
            value = readable_codings(value)
        self._lines.append(b"%b: %b\r\n" % (name, value))

    def lines(self) -> bytes:
        """The header lines that go to a backend, each ending in CRLF."""
        if self._dropped:
            return b"".join(line for line in self._lines if line.partition(b":")[0].lower() not in self._dropped)
        return b"".join(self._lines)

    def _note(self, lower: bytes, value: bytes) -> None:
        if lower == b"content-length" and value.isdigit():
            self.content_length = int(value)
        elif lower == b"expect":
            self.expect = value.strip().lower()
        elif lower == b"connection":
            tokens = {token.strip().lower() for token in value.split(b",")}
            self._dropped |= tokens - NOT_FORWARDED - PERSISTENCE


def readable_codings(value: bytes) -> bytes:
    """An Accept-Encoding that the router can check: a backend that offers br or zstd is not asked for them."""
    if value == b"gzip, deflate":  # what Gym's client sends, always
        return value
    offered = [token.strip() for token in value.split(b",")]
    kept = [
        token for token in offered if token.partition(b";")[0].strip().lower().decode("latin-1") in READABLE_CODINGS
    ]
    return value if len(kept) == len(offered) else b", ".join(kept) or b"identity"


def request_head(
    method: bytes, target: bytes, authority: bytes, lines: bytes, body_length: int, *, close: bool = False
) -> bytes:
    """The bytes of a request up to its body. A GET without a body has no Content-Length."""
    length = b"" if method == b"GET" and not body_length else b"Content-Length: %d\r\n" % body_length
    connection = b"Connection: close\r\n" if close else b""
    return b"%b %b HTTP/1.1\r\nHost: %b\r\n%b%b%b\r\n" % (method, target, authority, connection, lines, length)


def passed_back(headers: RawHeaders) -> tuple[tuple[str, str], ...]:
    """The response headers that go to the client; `headers` has lower-case names. The first of a name wins."""
    kept: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in PASSED_BACK and name not in kept and len(value) <= MAX_PASSED_VALUE:
            kept[name] = value
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in kept.items())


def header(headers: RawHeaders, name: bytes) -> str:
    """The first value of `name` (lower case), or an empty string."""
    for key, value in headers:
        if key == name:
            return value.decode("latin-1").strip()
    return ""
