"""The harness's last will: a small process that kills what the harness started, when the harness dies.

A harness that is killed can clean nothing up, and a stopped child cannot watch its parent. So every process group is
named to the guard, over a pipe whose end means that the harness is gone. This file is also the guard's program and
is run without site-packages, so it imports nothing but the standard library.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Self


class Guard:
    """A context manager; the groups named between `watch` and `forget` do not outlive this process."""

    def __enter__(self) -> Self:
        # A session of its own: Ctrl-C at a terminal goes to the harness, which then says goodbye itself.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, start_new_session=True
        )
        return self

    def watch(self, group: int) -> None:
        """Take a process group into care."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """The group has ended: its number may come to belong to somebody else."""
        self._tell(f"-{group}\n")

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


def _main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends with its harness, and not before
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _main()
