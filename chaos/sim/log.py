"""What a shard writes down about the POSTs it got, and how that becomes `Served` records.

One JSON object a line, written at once, so that SIGKILL loses nothing; one file over all restarts of a shard. Times
are `time.monotonic()` seconds. Probes (GET) are not written: they are no work.

    {"event": "start", "t": 1.0, "pid": 4242}
    {"event": "request", "t": 1.1, "id": "9f3c-1", "call": "r0.t1", "path": "/v1/responses", "sha256": "", "bytes": 9}
    {"event": "response", "t": 1.2, "id": "9f3c-1", "status": 200, "sha256": "", "bytes": 812}
    {"event": "disconnect", "t": 1.2, "id": "9f3c-2"}
"""

import dataclasses
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import orjson

from ..history import Delivery, Served
from ..tags import call_of

GENERATION_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")


class ShardLog:
    """The writing end."""

    def __init__(self, path: Path | None) -> None:
        self._file = os.open(path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._life = os.urandom(4).hex()  # ids are unique over all lives of the shard
        self._count = 0
        self._write({"event": "start", "t": time.monotonic(), "pid": os.getpid()})

    def request(self, path: str, body: bytes) -> str:
        """Note a whole request; the id for what becomes of it."""
        self._count += 1
        request = f"{self._life}-{self._count}"
        self._write(
            {
                "event": "request",
                "t": time.monotonic(),
                "id": request,
                "call": call_of(body),
                "path": path,
                "sha256": hashlib.sha256(body).hexdigest(),
                "bytes": len(body),
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

    def _write(self, event: dict[str, Any]) -> None:
        os.write(self._file, orjson.dumps(event) + b"\n")


class LogReader:
    """Reads a shard's log as it grows."""

    def __init__(self, path: Path, shard: int) -> None:
        self._path = path
        self._shard = shard
        self._offset = 0
        self._seen: dict[str, Served] = {}
        self._open: set[str] = set()

    def served(self) -> list[Served]:
        """Everything the shard was asked so far, oldest first. What has no end in the log is RUNNING."""
        self._catch_up()
        return list(self._seen.values())

    def in_flight(self) -> int:
        """How many generations the shard's present process has begun and not ended, as far as the log tells."""
        self._catch_up()
        return sum(self._seen[request].path in GENERATION_PATHS for request in self._open)

    def _catch_up(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]  # a line that is just being written waits for the next time
        self._offset += len(whole)
        for line in whole.splitlines():
            self._take(orjson.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        request = event.get("id", "")
        match event["event"]:
            case "start":
                self._open.clear()
            case "request":
                self._open.add(request)
                self._seen[request] = Served(
                    shard=self._shard,
                    call=event["call"],
                    path=event["path"],
                    started=event["t"],
                    ended=None,
                    ending=Delivery.RUNNING,
                    request_sha256=event["sha256"],
                )
            case "response":
                self._end(request, event["t"], Delivery.ANSWERED, event["status"], event["sha256"])
            case "disconnect":
                self._end(request, event["t"], Delivery.CANCELLED)

    def _end(self, request: str, t: float, ending: Delivery, status: int | None = None, sha256: str = "") -> None:
        self._open.discard(request)
        self._seen[request] = dataclasses.replace(
            self._seen[request], ended=t, ending=ending, status=status, response_sha256=sha256
        )


def read_served(path: Path, shard: int) -> list[Served]:
    """All `Served` records of one log file; a missing file has none."""
    return LogReader(path, shard).served()
