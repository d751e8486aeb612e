"""Asks one question over a socket of its own and reads the answer without correcting it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from .raw_answer import RawAnswer, parse_head

_HEAD_LIMIT = 1 << 20  # bytes; far above what any client takes
_BODY_LIMIT = 64 << 20  # bytes; an answer to a harmless question is never near it
_FIRST_FINAL = 200


class BrokenAnswerError(Exception):
    """A server's answer broke off before its headers were complete; `fault` is the contract's name for it."""

    def __init__(self, fault: str, problem: str) -> None:
        self.fault = fault
        super().__init__(problem)


@dataclass(frozen=True, slots=True)
class Target:
    """Where the questions go: the parts of a base URL, without `/v1` and trailing slashes."""

    host: str
    port: int
    tls: bool
    prefix: str

    def request(self, method: str, path: str, headers: tuple[str, ...] = (), body: bytes = b"") -> bytes:
        """One request as NeMo-Gym words it, plus `headers`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [
            f"{method} {self.prefix}{path} HTTP/1.1",
            f"Host: {host}:{self.port}",
            "Authorization: Bearer gymproof",
            "Accept: */*",
            "Accept-Encoding: gzip, deflate",
            *headers,
        ]
        if method == "POST":
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def parse_target(url: str) -> Target:
    """Split a base URL; ValueError, saying why, for one that cannot be asked."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http:// or https:// URL with a host")
    tls = parts.scheme == "https"
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    return Target(parts.hostname, parts.port or (443 if tls else 80), tls, prefix)


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection; answers are read in the order of the questions."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: bytes) -> RawAnswer:
        """Send raw bytes and read one answer. Raises BrokenAnswerError, or NotHttpError."""
        try:
            self.writer.write(request)
            await self.writer.drain()
        except ConnectionError:
            pass  # the server may have answered before it stopped reading
        answer = await self._head()
        while answer.status < _FIRST_FINAL:
            answer = await self._head()
        return await self._body(answer)

    async def _head(self) -> RawAnswer:
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                raise BrokenAnswerError("fin_after_request", "closed without an answer") from None
            if not error.partial.startswith(b"HTTP/"):
                return parse_head(error.partial)
            raise BrokenAnswerError("fin_in_headers", "closed in the middle of the headers") from None
        except ConnectionError:
            raise BrokenAnswerError("rst_after_request", "reset without an answer") from None
        except asyncio.LimitOverrunError:
            raise BrokenAnswerError("header_line_70000", "headers of more than 1 MiB") from None
        return parse_head(head.removesuffix(b"\r\n\r\n"))

    async def _body(self, answer: RawAnswer) -> RawAnswer:
        try:
            if "chunked" in answer.header("transfer-encoding").lower():
                return replace(answer, body=await self._chunks())
            if length := answer.header("content-length"):
                return replace(answer, body=await self.reader.readexactly(min(int(length), _BODY_LIMIT)))
            if answer.status in (204, 304):
                return answer
            return replace(answer, body=await self.reader.read(_BODY_LIMIT))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
            return replace(answer, cut=True)

    async def _chunks(self) -> bytes:
        body = b""
        while size := int((await self.reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        while await self.reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return body


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Connection]:
    """A connection that is closed with the context; OSError when there is none to be had."""
    context = ssl.create_default_context() if target.tls else None
    reader, writer = await asyncio.open_connection(target.host, target.port, ssl=context, limit=_HEAD_LIMIT)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
