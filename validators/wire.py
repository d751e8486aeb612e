"""Raw HTTP/1.1 answers as bytes, right and wrong ones.

Nothing here opens a socket. The builders check nothing on purpose: a test server has to be
able to say things that no HTTP library would send.
"""

import json
from collections.abc import Sequence

CRLF = b"\r\n"

COMPLETION = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
    }
).encode()
ERROR = json.dumps(
    {"error": {"message": "scripted", "type": "server_error", "code": "scripted", "param": None}}
).encode()

# Statuses that HTTP defines as having no body, so an honest server sends none.
BODILESS = frozenset({204, 205, 304})


def head(
    status: int | str,
    headers: Sequence[str] = (),
    *,
    reason: str = "Scripted",
    version: str = "HTTP/1.1",
) -> bytes:
    """Status line and header lines, up to and with the empty line, in latin-1."""
    return ("\r\n".join([f"{version} {status} {reason}", *headers]) + "\r\n\r\n").encode("latin-1")


def answer(
    status: int | str,
    body: bytes = b"",
    headers: Sequence[str] = (),
    *,
    content_type: str | None = "application/json",
    length: bool = True,
    reason: str = "Scripted",
    version: str = "HTTP/1.1",
) -> bytes:
    """One whole answer; `length=False` leaves out Content-Length."""
    typed = [f"Content-Type: {content_type}"] if content_type else []
    sized = [f"Content-Length: {len(body)}"] if length else []
    return head(status, [*typed, *sized, *headers], reason=reason, version=version) + body


def chunked(status: int, body: bytes, headers: Sequence[str] = (), *, last_chunk: bool = True) -> bytes:
    """One answer in a single chunk; without `last_chunk` it is truncated."""
    start = answer(status, headers=["Transfer-Encoding: chunked", *headers], length=False)
    chunk = f"{len(body):x}".encode() + CRLF + body + CRLF
    return start + chunk + (b"0\r\n\r\n" if last_chunk else b"")


def plain(status: int) -> bytes:
    """The answer an honest server gives with `status`: a completion below 300, else an error."""
    if status in BODILESS:
        return answer(status, content_type=None, length=status == 205)  # noqa: PLR2004
    return answer(status, COMPLETION if status < 300 else ERROR)  # noqa: PLR2004


OK = answer(200, COMPLETION)
