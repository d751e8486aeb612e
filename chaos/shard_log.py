"""What a shard writes down about the POSTs it got. `served.py` reads it.

One JSON object a line, written at once, so that SIGKILL loses nothing; one file over all restarts of a shard. Times
are `time.monotonic()` seconds. Probes (GET) are not written: they are no work.

    {"event": "start", "t": 1.0, "pid": 4242}
    {"event": "request", "t": 1.1, "id": "9f3c-1", "call": "r0.t1", "path": "/v1/responses", "sha256": "", "bytes": 9}
    {"event": "response", "t": 1.2, "id": "9f3c-1", "status": 200, "sha256": "", "bytes": 812}
    {"event": "disconnect", "t": 1.2, "id": "9f3c-2"}

Of a request with `kv_transfer_params`, one leg of two, it also says which leg it is, what its `X-Request-Id` was, and
which transfer it asks for. Its sha256 is that of the body without them: what the client sent, if it is the decode leg.
A prefill server notes for whom it keeps blocks, and why it no longer does:

    {"event": "request", ..., "leg": "decode", "request_id": "7", "transfer": "cmpl-7-1f0e"}
    {"event": "pin", "t": 1.3, "id": "9f3c-3", "transfer": "cmpl-7-1f0e"}
    {"event": "release", "t": 1.4, "id": "9f3c-3", "why": "read"}

It is used inside real vLLM too, whose environment has nothing of ours: standard library, `tags.py` and `splicing.py`.
"""

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from .splicing import without_member
from .tags import call_of

GENERATION_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
PARAMS = "kv_transfer_params"


class ShardLog:
    """The writing end; without a path it writes nowhere."""

    def __init__(self, path: Path | None) -> None:
        self._file = os.open(path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._life = os.urandom(4).hex()  # ids are unique over all lives of the shard
        self._count = 0
        self._write({"event": "start", "t": time.monotonic(), "pid": os.getpid()})

    def request(self, path: str, body: bytes, request_id: str = "") -> str:
        """Note a whole request and its X-Request-Id; the id for what becomes of it."""
        self._count += 1
        known, leg = _read_leg(body)
        request = f"{self._life}-{self._count}"
        self._write(
            {
                "event": "request",
                "t": time.monotonic(),
                "id": request,
                "call": call_of(body),
                "path": path,
                "sha256": hashlib.sha256(known).hexdigest(),
                "bytes": len(body),
                **({**leg, "request_id": request_id} if leg else {}),
            }
        )
        return request

    def response(self, request: str, status: int, sha256: str, size: int) -> None:
        """Note an answer just before its last bytes go out: a client never has an answer that the log lacks."""
        event = {"event": "response", "t": time.monotonic(), "id": request, "status": status}
        self._write({**event, "sha256": sha256, "bytes": size})

    def disconnect(self, request: str) -> None:
        """Note that the peer closed its connection first."""
        self._write({"event": "disconnect", "t": time.monotonic(), "id": request})

    def pin(self, request: str, transfer: str) -> None:
        """Note that the blocks of a finished request are kept for a decode server."""
        self._write({"event": "pin", "t": time.monotonic(), "id": request, "transfer": transfer})

    def release(self, request: str, why: str) -> None:
        """Note that they no longer are: they were "read", "rejected", or nobody came and they "expired"."""
        self._write({"event": "release", "t": time.monotonic(), "id": request, "why": why})

    def _write(self, event: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(event).encode() + b"\n")


def _read_leg(body: bytes) -> tuple[bytes, dict[str, str]]:
    """The body without its transfer parameters, and what they say; all of it and nothing if it has none."""
    known, value = without_member(body, PARAMS) if PARAMS.encode() in body else (body, None)
    if not isinstance(value, dict):
        return body, {}
    leg = "decode" if value.get("do_remote_prefill") else "prefill"
    return known, {"leg": leg, "transfer": str(value.get("remote_request_id") or "")}
