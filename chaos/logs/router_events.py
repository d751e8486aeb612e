"""gym-router's event log (`--event-log`): JSON lines with "event"."""

from typing import Any

import orjson

from .base import Harm, LogFormat, Reading, Sign, harm, numbered

_NAME = "gym-router events"
# What an attempt of this failure met on the shard. Those that are missing say nothing about a shard.
_HARMS: dict[str, Harm] = {
    "unreachable": harm("kill", process="group"),
    "broke": harm("reset_after_request"),
    "invalid": harm("cut_body"),
    "hung": harm("stop", process="engine"),
    "wedged": harm("stop", process="engine"),
    "aborted": harm("abort"),
}
_WITH_STATUS = ("busy", "erred", "redirected")
_LIMITS = {"backend_timeout_s": "deadline_s", "max_attempts": "max_attempts", "stall_after_s": "stall_after_s"}


_TRIED = 5  # lines: a log that was cut to size begins in the middle of one


def _recognises(text: str) -> bool:
    first = text.lstrip().split("\n", _TRIED)[:_TRIED]
    return any(line.startswith("{") and '"event"' in line and '"mono"' in line for line in first)


def _read(text: str, file: str) -> Reading:
    reading = Reading(file, _NAME)
    for number, line in numbered(text):
        try:
            _take(reading, f"{file}:{number}", orjson.loads(line))
        except (orjson.JSONDecodeError, LookupError, AttributeError, TypeError):
            reading.broken(number, line)
    return reading


def _take(reading: Reading, line: str, event: dict[str, Any]) -> None:
    match event["event"]:
        case "start":
            config = event["config"]
            reading.limits = {ours: config[theirs] for theirs, ours in _LIMITS.items() if theirs in config}
        case "attempt":
            shard = reading.name(event["shard"])
            failure, status = event["failure"], event["status"]
            met = harm("status", status=status) if failure in _WITH_STATUS and status else _HARMS.get(failure or "")
            if met is None:
                reading.ignored += 1
                return
            says = f"attempt on {shard}: {failure} ({event['reason'] or status}), reached {event['reached']}"
            reading.signs.append(Sign(line, says, shard, event["t"], met))
        case "state":
            shard = reading.name(event["shard"])
            says = f"{shard} went from {event['from']} to {event['to']}: {event['why']}"
            reading.signs.append(Sign(line, says, shard, event["t"]))
        case _:
            reading.ignored += 1


ROUTER_EVENTS = LogFormat(_recognises, _read)
