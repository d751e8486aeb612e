"""What the router tells the outside about single events: log lines for people, a JSONL journal for tools.

One line per failed attempt, state change and refusal goes to the log. The journal, when there is one, gets every
attempt and every answer too, each line written at once, so that a reader sees all that came before a crash.
"""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import orjson

LOG = logging.getLogger("gymproof.router")


class Journal:
    """Append-only JSONL. Without a path it swallows everything, and `enabled` spares callers the work."""

    def __init__(self, path: Path | None = None) -> None:
        self._file: BinaryIO | None = None if path is None else path.open("ab", buffering=0)
        self.enabled = self._file is not None

    def write(self, event: str, fields: Mapping[str, Any]) -> None:
        """One line: `mono` (time.monotonic), `t` (time.time), `event`, and the fields."""
        if self._file is not None:
            line = {"mono": time.monotonic(), "t": time.time(), "event": event, **fields}
            self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def close(self) -> None:
        """Close the file; later events are dropped."""
        if self._file is not None:
            self._file.close()
            self._file, self.enabled = None, False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class JsonFormatter(logging.Formatter):
    """One JSON object a line; the `fields` of a record become keys."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON text."""
        line: dict[str, Any] = {
            "t": record.created,
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class TextFormatter(logging.Formatter):
    """Time, level, message, then `key=value` for the fields."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        pairs = [f"{key}={value}" for key, value in fields.items() if value is not None]
        return " ".join([super().format(record), *pairs])


def configure_logging(log_format: str, level: str = "INFO") -> None:
    """Send the router's log to stderr as `text` or `json`; for the command, not for library use."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    LOG.handlers[:] = [handler]
    LOG.setLevel(level.upper())
    LOG.propagate = False
