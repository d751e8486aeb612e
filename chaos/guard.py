"""The harness's last will: a small process that kills what the harness started, when the harness dies.

A harness that is killed can clean nothing up, and a stopped child cannot watch its parent. So every process group is
named to the guard, over a pipe whose end means that the harness is gone, and so are folders that programs leave full of
their remains. This file is also the guard's program and is run without site-packages, so it imports nothing but the
standard library.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_EMPTIED_WITHIN_S = 5.0


class Guard:
    """A context manager; the groups named between `watch` and `forget` do not outlive this process."""

    def __enter__(self) -> Self:
        # A session of its own: Ctrl-C at a terminal goes to the harness, which then says goodbye itself.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, start_new_session=True
        )
        return self

    def watch(self, group: int) -> None:
        """Take a process group, which is a session too, into care."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """The group has ended: its number may come to belong to somebody else."""
        self._tell(f"-{group}\n")

    def folder(self, prefix: str) -> str:
        """A new temporary folder, with a path short enough for sockets in it, that goes when the guard does."""
        folder = tempfile.mkdtemp(prefix=prefix)
        self._tell(f"/{folder}\n")
        return folder

    def _tell(self, line: str) -> None:
        if (pipe := self._process.stdin) is not None:
            pipe.write(line.encode())
            pipe.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def kill_session(leader: int) -> None:
    """SIGKILL to a process group that is a session, and to the other groups in it: each Ray worker is one."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()):
        with suppress(ProcessLookupError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)


def _main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends with its harness, and not before
    groups: set[str] = set()
    folders: set[str] = set()
    for line in sys.stdin:
        name = line[1:].rstrip("\n")
        match line[0]:
            case "+":
                groups.add(name)
            case "-":
                groups.discard(name)
            case "/":
                folders.add(name)
    for group in groups:
        kill_session(int(group))
    for folder in folders:
        _remove(Path(folder))


def _remove(folder: Path) -> None:
    """Whoever is still dying may write into it meanwhile."""
    give_up = time.monotonic() + _EMPTIED_WITHIN_S
    while folder.exists() and time.monotonic() < give_up:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)


if __name__ == "__main__":
    _main()
