"""The harness's end of `inside/gymproof_preload.py`: one process that has vLLM imported and forks servers."""

import asyncio
import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..guard import Guard
from ..processes import Group, size
from .inside import PROGRAMS

_FORKED_WITHIN_S = 10.0
_GONE_WITHIN_S = 10.0
_POLL_S = 0.05
_TAIL_LINES = 20
_LOST = -9  # the exit code of servers whose preloading process has ended: it takes them along


class PreloadError(RuntimeError):
    """vLLM could not be preloaded, or its process has ended; the message has the end of what it printed."""


class Preload:
    """A process that has imported vLLM; a context manager that ends it. Wait for `ready` before `start`."""

    def __init__(self, python: Path, env: Mapping[str, str], output: Path, guard: Guard) -> None:
        self._argv = [str(python), str(PROGRAMS / "gymproof_preload.py")]
        self._env = env
        self._output = output
        self._guard = guard
        self._buffer = b""
        self._ready = False
        self._started: list[int] = []
        self._codes: dict[int, int] = {}
        self._lost = False

    def __enter__(self) -> Self:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=self._env,
                start_new_session=True,
            )
        self._guard.watch(self._process.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(_GONE_WITHIN_S)
        self._guard.forget(self._process.pid)

    async def ready(self, within_s: float) -> None:
        """Wait until vLLM is imported. Raises PreloadError."""
        last = time.monotonic() + within_s
        while not self._ready:
            self._read(0.0)
            if self._lost:
                raise PreloadError(f"vLLM could not be preloaded:\n{self._tail()}")
            if time.monotonic() > last:
                raise PreloadError(f"vLLM is not preloaded after {within_s:g} s:\n{self._tail()}")
            await asyncio.sleep(_POLL_S)

    def start(self, argv: Sequence[str], env: Mapping[str, str], output: Path) -> "ForkedServer":
        """Fork a server, which takes some hundredths of a second. Raises PreloadError."""
        started_at = size(output)
        order = json.dumps({"argv": list(argv), "env": dict(env), "output": str(output)})
        known, last = len(self._started), time.monotonic() + _FORKED_WITHIN_S
        if self._process.stdin is not None and not self._lost:
            self._process.stdin.write(order.encode() + b"\n")
            self._process.stdin.flush()
        while len(self._started) == known:
            if self._lost or time.monotonic() > last:
                raise PreloadError(f"the process that forks servers does not:\n{self._tail()}")
            self._read(_POLL_S)
        return ForkedServer(self, self._started[-1], guard=self._guard, output=output, started_at=started_at)

    def exit_code(self, pid: int) -> int | None:
        """How a server ended, None while it lives."""
        self._read(0.0)
        return self._codes.get(pid, _LOST if self._lost else None)

    def reap(self, pid: int, within_s: float) -> None:
        """Wait for a server's end. Raises TimeoutError."""
        last = time.monotonic() + within_s
        while self.exit_code(pid) is None:
            if time.monotonic() > last:
                raise TimeoutError(f"server {pid} does not end, {within_s} s after SIGKILL")
            self._read(_POLL_S)

    def _read(self, within_s: float) -> None:
        """Take in what the process has told, waiting at most `within_s` seconds for something."""
        pipe = self._process.stdout
        while pipe is not None and not self._lost and select.select([pipe], [], [], within_s)[0]:
            data = os.read(pipe.fileno(), 1 << 16)
            self._lost = not data
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            within_s = 0.0

    def _take(self, event: dict[str, Any]) -> None:
        match event:
            case {"ready": True}:
                self._ready = True
            case {"started": int(pid)}:
                self._started.append(pid)
                self._codes.pop(pid, None)
            case {"ended": int(pid), "code": int(code)}:
                self._codes[pid] = code

    def _tail(self) -> str:
        lines = self._output.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])


class ForkedServer(Group):
    """An API server and its engine, forked by a `Preload`."""

    def __init__(self, preload: Preload, pid: int, *, guard: Guard, output: Path, started_at: int) -> None:
        super().__init__(pid, guard=guard, output=output, started_at=started_at)
        self._preload = preload

    def exit_code(self) -> int | None:
        """How the API server ended, None while it lives."""
        return self._preload.exit_code(self.pid)

    def reap(self, within_s: float) -> None:
        """Wait for the API server, which was killed. Raises TimeoutError."""
        self._preload.reap(self.pid, within_s)
