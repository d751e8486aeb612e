"""The engine process: a scheduler, a clock, and one socket to the API server that forked it.

Commands and events are JSON lines. Like vLLM's engine it outlives a killed API server, but not by more than two
minutes; its harness kills the process group long before.
"""

import os
import select
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from .scheduler import Output, Scheduler
from .settings import ENGINE_COMM, Settings

_ORPHAN_S = 120.0
_STATS_EVERY_S = 0.05


def fork_engine(settings: Settings) -> tuple[int, socket.socket]:
    """Fork the engine; its pid and the API server's end of the socket."""
    ours, engines = socket.socketpair()
    pid = os.fork()
    if pid:
        engines.close()
        return pid, ours
    ours.close()
    try:
        _run(settings, engines)
    finally:
        os._exit(1)


def _run(settings: Settings, api: socket.socket) -> None:
    Path("/proc/self/comm").write_text(ENGINE_COMM, encoding="ascii")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    engine = Engine(settings, api)
    while engine.turn():
        pass
    os._exit(0)


class EngineCore:
    """Takes commands and steps its scheduler when told to; what comes out is given to `send`, as an event."""

    def __init__(self, settings: Settings, send: Callable[[dict[str, Any]], None]) -> None:
        self._scheduler = Scheduler(settings)
        self.step_s = settings.token_ms / 1000
        self._prefill_s = settings.prefill_us / 1e6
        self._send = send
        self._next_stats = 0.0
        self._pause_reply: int | None = None
        self._send({"event": "ready"})

    def busy(self) -> bool:
        """Whether a step would do anything."""
        return self._scheduler.busy()

    def step(self, now: float) -> float:
        """Take one step of the scheduler and report; the seconds that it takes an engine."""
        self._report(self._scheduler.step(), now)
        return self.step_s + self._scheduler.prefilled * self._prefill_s

    def obey(self, command: dict[str, Any]) -> None:
        """Do what the API server says."""
        scheduler = self._scheduler
        outputs: list[Output] = []
        match command.pop("do"):
            case "add":
                scheduler.add(**command)
            case "drop":
                scheduler.drop(command["request"])
            case "abort_all":
                outputs = scheduler.abort_all()
            case "pause":
                outputs = scheduler.pause(command["mode"])
                self._pause_reply = command["id"]
            case "resume":
                scheduler.resume()
                self._send({"event": "reply", "id": command["id"], "paused": False})
            case "is_paused":
                self._send({"event": "reply", "id": command["id"], "paused": scheduler.paused})
        self._report(outputs, time.monotonic())

    def _report(self, outputs: list[Output], now: float) -> None:
        # A pause that has frozen everything shows the last counts: they must not move afterwards.
        if outputs or now >= self._next_stats or self._scheduler.idle() or self._scheduler.frozen:
            self._next_stats = now + _STATS_EVERY_S
            self._send(
                {
                    "event": "step",
                    "outputs": [(output.id, output.tokens, output.finish) for output in outputs],
                    "stats": self._scheduler.stats.snapshot(),
                }
            )
        if self._pause_reply is not None and (self._scheduler.idle() or self._scheduler.frozen):
            self._send({"event": "reply", "id": self._pause_reply, "paused": True})
            self._pause_reply = None


class Engine:
    """The core with a clock and a socket: it steps while there is work."""

    def __init__(self, settings: Settings, api: socket.socket) -> None:
        self._api = api
        self._buffer = b""
        self._next_step = 0.0
        self._orphan_since: float | None = None
        self._core = EngineCore(settings, self._send)

    def turn(self) -> bool:
        """Wait for a command or the next step and act on it; False when the engine should end."""
        now = time.monotonic()
        if self._orphan_since is not None and now - self._orphan_since > _ORPHAN_S:
            return False
        busy = self._core.busy()
        timeout = max(0.0, self._next_step - now) if busy else (None if self._orphan_since is None else 1.0)
        watched = [self._api] if self._orphan_since is None else []
        if select.select(watched, [], [], timeout)[0]:
            self._read()
        now = time.monotonic()
        if not busy and self._core.busy():
            self._next_step = now + self._core.step_s  # the first token takes its time too
        if self._core.busy() and now >= self._next_step:
            # A stopped engine loses its time: after SIGCONT it goes on, it does not catch up.
            self._next_step = now + self._core.step(now)
        return True

    def _read(self) -> None:
        data = self._api.recv(1 << 20)
        if not data:
            self._orphan_since = time.monotonic()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._core.obey(orjson.loads(line))

    def _send(self, event: dict[str, Any]) -> None:
        if self._orphan_since is not None:
            return
        try:
            self._api.sendall(orjson.dumps(event) + b"\n")
        except OSError:
            self._orphan_since = time.monotonic()
