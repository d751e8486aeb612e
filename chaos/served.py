"""What a shard's log (`shard_log.py`) becomes: `Served` records, and what it has in flight."""

import dataclasses
from pathlib import Path
from typing import Any

import orjson

from .history import Delivery, Lease, Served
from .shard_log import GENERATION_PATHS


class ServedBook:
    """What the events of a shard's log amount to."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._seen: dict[str, Served] = {}
        self._open: set[str] = set()

    def served(self) -> list[Served]:
        """Everything the shard was asked so far, oldest first. What has no end in the log is RUNNING."""
        return list(self._seen.values())

    def in_flight(self) -> int:
        """How many generations the shard's present process has begun and not ended, as far as the log tells."""
        return sum(self._seen[request].path in GENERATION_PATHS for request in self._open)

    def begun(self, calls: str, since: float) -> int:
        """How many generations, of calls whose tag begins with `calls`, have reached it since that moment."""
        return sum(
            seen.started >= since and seen.path in GENERATION_PATHS and seen.call.startswith(calls)
            for seen in self.served()
        )

    def take(self, event: dict[str, Any]) -> None:
        """Note one event."""
        request = event.get("id", "")
        match event["event"]:
            case "start":
                self._open.clear()
                self._lose()
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
                    leg=event.get("leg", ""),
                    request_id=event.get("request_id", ""),
                    transfer=event.get("transfer", ""),
                )
            case "response":
                self._end(request, event["t"], Delivery.ANSWERED, event["status"], event["sha256"])
            case "disconnect":
                self._end(request, event["t"], Delivery.CANCELLED)
            case "pin":
                self._note(request, transfer=event["transfer"], lease=Lease.PINNED)
            case "release":
                self._note(request, lease=Lease(event["why"]))

    def _end(self, request: str, t: float, ending: Delivery, status: int | None = None, sha256: str = "") -> None:
        self._open.discard(request)
        self._note(request, ended=t, ending=ending, status=status, response_sha256=sha256)

    def _note(self, request: str, **fields: Any) -> None:
        self._seen[request] = dataclasses.replace(self._seen[request], **fields)

    def _lose(self) -> None:
        """What a dead process kept is gone."""
        for request, served in self._seen.items():
            if served.lease is Lease.PINNED:
                self._seen[request] = dataclasses.replace(served, lease=Lease.LOST)


class LogReader(ServedBook):
    """Reads a shard's log as it grows."""

    def __init__(self, path: Path, shard: int) -> None:
        super().__init__(shard)
        self._path = path
        self._offset = 0

    def served(self) -> list[Served]:
        """See ServedBook."""
        self._catch_up()
        return super().served()

    def in_flight(self) -> int:
        """See ServedBook."""
        self._catch_up()
        return super().in_flight()

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
            self.take(orjson.loads(line))


def read_served(path: Path, shard: int) -> list[Served]:
    """All `Served` records of one log file; a missing file has none."""
    return LogReader(path, shard).served()
