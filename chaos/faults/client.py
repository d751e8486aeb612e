"""What faults on the client side share: requests as bytes, so that a client may leave in the middle of one."""

from typing import Any
from urllib.parse import urlsplit

import orjson

from ..tags import tag

CHAT_PATH = "/v1/chat/completions"


def chat_body(call: str, text: str = "", **fields: Any) -> bytes:
    """A chat request that carries the tag of `call`."""
    return orjson.dumps({"messages": [{"role": "user", "content": f"{tag(call)} {text}"}], **fields})


def post(entry_url: str, body: bytes) -> bytes:
    """A chat request with this body, as it goes on the wire."""
    lines = (
        f"POST {CHAT_PATH} HTTP/1.1",
        f"Host: {urlsplit(entry_url).netloc}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
