"""A vLLM server's own output: the death of its engine, and a shutdown that somebody asked for. One file a shard."""

import re
import time

from .base import LogFormat, Reading, Sign, harm, numbered

_NAME = "vLLM server"
_ADDRESS = re.compile(r"Starting vLLM server on (http://\S+)")
_TIME = re.compile(r" (\d\d)-(\d\d) (\d\d:\d\d:\d\d) \[")
_SIGNS = {
    "engine core exited unexpectedly": ("its engine died", harm("kill", process="engine")),
    "API server: shutdown triggered": ("it was told to shut down", harm("terminate")),
    "EngineDeadError:": ("requests failed, since its engine was dead", None),
}


def _recognises(text: str) -> bool:
    return "(APIServer pid=" in text or _ADDRESS.search(text) is not None


def _read(text: str, file: str) -> Reading:
    reading = Reading(file, _NAME, gaps=["a server's log has no year: this one is assumed"])
    shard = reading.name(found[1] if (found := _ADDRESS.search(text)) else file)
    seen: set[str] = set()
    for number, line in numbered(text):
        if "\ufffd" in line:
            reading.broken(number, line)
            continue
        if "Starting vLLM server" in line:
            seen.clear()  # a new life
        mark = next((mark for mark in _SIGNS if mark in line), None)
        if mark is None or mark in seen:
            reading.ignored += 1
            continue
        seen.add(mark)
        says, met = _SIGNS[mark]
        reading.signs.append(Sign(f"{file}:{number}", f"{shard}: {says}", shard, _time(line), met))
    return reading


def _time(line: str) -> float | None:
    if (found := _TIME.search(line)) is None:
        return None
    month, day, clock = found.groups()
    return time.mktime(time.strptime(f"{time.localtime().tm_year}-{month}-{day} {clock}", "%Y-%m-%d %H:%M:%S"))


VLLM_SERVER = LogFormat(_recognises, _read)
