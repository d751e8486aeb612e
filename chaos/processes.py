"""Programs that the harness starts, each a process group of its own, and how their processes are found and ended."""

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from .guard import Guard, kill_session

_GONE_WITHIN_S = 10.0
_TAIL_LINES = 20


class Group(ABC):
    """A process group that the harness has started, by itself or through a program of its own, as a session.

    `close` kills the whole session, orphans included; whoever makes a `Group` calls it in `finally`. The group's output
    goes to a file, appended over restarts.
    """

    def __init__(self, pid: int, *, guard: Guard, output: Path, started_at: int) -> None:
        self.pid = pid
        self._guard = guard
        self._output = output
        self._started_at = started_at  # where in the output this start of it begins
        guard.watch(pid)

    @abstractmethod
    def exit_code(self) -> int | None:
        """How the leader ended (negative: by that signal), None while it lives."""

    @abstractmethod
    def reap(self, within_s: float) -> None:
        """Wait for the leader, which was killed. Raises TimeoutError or subprocess.TimeoutExpired."""

    def signal(self, signum: int) -> None:
        """Send a signal to the leader, if it still lives."""
        if self.exit_code() is None:
            os.kill(self.pid, signum)

    def signal_group(self, signum: int) -> None:
        """Send a signal to every process of the group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signum)

    async def kill_node(self) -> None:
        """Lose the machine that it runs on, with all that is there; a group of this machine is a machine of its own."""
        self.signal_group(signal.SIGKILL)

    def find(self, name: str) -> int | None:
        """The living process of the group whose name (as the kernel keeps it, 15 characters) begins like `name`."""
        return next((pid for pid in members(self.pid) if _name(pid).startswith(name[:15])), None)

    def tail(self) -> str:
        """The last lines that this start of the program has put out."""
        with self._output.open("rb") as file:
            file.seek(self._started_at)
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    def close(self) -> None:
        """Kill the session and wait, some milliseconds as a rule, until nothing of it is left. May be called twice.

        It does not await, so that a cancelled harness cannot leave it half-way.
        """
        kill_session(self.pid)
        self.reap(_GONE_WITHIN_S)
        last = time.monotonic() + _GONE_WITHIN_S
        while left := members(self.pid):
            if time.monotonic() > last:
                raise TimeoutError(f"processes {left} of group {self.pid} do not die, {_GONE_WITHIN_S} s after SIGKILL")
            time.sleep(0.002)
        self._guard.forget(self.pid)


class ProcessGroup(Group):
    """A started program and everything that it starts; `env` is the whole environment, None the harness's own."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        guard: Guard,
        output: Path,
        env: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        with output.open("ab") as file:
            started_at = file.tell()
            self._process = subprocess.Popen(
                argv, stdin=stdin, stdout=file, stderr=file, start_new_session=True, env=env
            )
        super().__init__(self._process.pid, guard=guard, output=output, started_at=started_at)

    def exit_code(self) -> int | None:
        """How the leader ended (negative: by that signal), None while it lives."""
        return self._process.poll()

    def reap(self, within_s: float) -> None:
        """Wait for the leader, which was killed. Raises subprocess.TimeoutExpired."""
        self._process.wait(within_s)


def size(output: Path) -> int:
    """Bytes in an output file, which need not be there yet."""
    return output.stat().st_size if output.exists() else 0


def members(session: int) -> list[int]:
    """Living processes of a session. Zombies do not count: an orphan's is reaped by init, when init likes."""
    return [pid for pid in psutil.pids() if in_session(pid, session)]


def in_session(pid: int, session: int) -> bool:
    """Whether a process lives, and in this session."""
    try:
        return os.getsid(pid) == session and psutil.Process(pid).status() not in {
            psutil.STATUS_ZOMBIE,
            psutil.STATUS_DEAD,
        }
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return ""
