"""What the harness asks by itself: one request on a socket of its own.

No client library stands in between, so nothing is retried, pooled or explained away.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import orjson

from .http1 import ResponseReader
from .tags import tag

CHAT_PATH = "/v1/chat/completions"
MODEL = "tiny"  # the name under which every fleet serves, whatever it serves
_PIECE = 1 << 16

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def dial(url: str) -> AsyncIterator[Streams]:
    """A connection to the host and port of `url`. Raises OSError.

    It is closed at once at the end, so that a shard that still works sees that nobody waits.
    """
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def ask(streams: Streams, request: bytes, answer: ResponseReader) -> None:
    """Send a request and read into `answer` until it is whole or bad, or the peer has closed. Raises OSError."""
    reader, writer = streams
    writer.write(request)
    while not answer.whole and answer.bad is None:
        data = await reader.read(_PIECE)
        if not data:
            answer.end()
            return
        answer.feed(data)


async def status_of(url: str, request: bytes, *, within_s: float) -> int | None:
    """The status of the answer, read no further than its first line; None if none comes within `within_s` seconds."""
    try:
        async with asyncio.timeout(within_s), dial(url) as (reader, writer):
            writer.write(request)
            protocol, status, *_ = (await reader.readline()).split()
            return int(status) if protocol.startswith(b"HTTP/") else None
    except (OSError, ValueError):
        return None


def chat_body(call: str, text: str = "", **fields: Any) -> bytes:
    """A chat request that carries the tag of `call`."""
    return orjson.dumps({"messages": [{"role": "user", "content": f"{tag(call)} {text}"}], **fields})


def post(url: str, body: bytes, path: str = CHAT_PATH) -> bytes:
    """A POST with this JSON body, as it goes on the wire to `url`."""
    lines = (
        f"POST {path} HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
