"""The log formats that an incident can be read from: one file each, and a row here."""

from .base import LogFormat, Reading
from .gym_console import GYM_CONSOLE
from .prometheus import PROMETHEUS_RANGE, PROMETHEUS_TEXT
from .router_events import ROUTER_EVENTS
from .vllm_server import VLLM_SERVER

FORMATS: dict[str, LogFormat] = {
    "gym-router events": ROUTER_EVENTS,
    "Prometheus range": PROMETHEUS_RANGE,
    "Prometheus text": PROMETHEUS_TEXT,
    "NeMo-Gym console": GYM_CONSOLE,
    "vLLM server": VLLM_SERVER,
}


def read_log(text: str, file: str) -> Reading:
    """Read a file's text in the first format that recognises it; in none, every line of it is unreadable."""
    for known in FORMATS.values():
        if known.recognises(text):
            return known.read(text, file)
    reading = Reading(file, "unknown", gaps=[f"its format is none of: {', '.join(FORMATS)}"])
    for number, line in enumerate(text.splitlines(), start=1):
        reading.broken(number, line)
    return reading
