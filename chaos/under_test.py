"""The router under test: somebody's command, started as a process of its own on a port that stays the same.

Nothing here knows which router it is: it gets backends and a port, and has to answer on it.
"""

import asyncio
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from .asking import status_of
from .choices import PLACEHOLDERS
from .fleet import generates
from .guard import Guard
from .ports import PortLease
from .processes import ProcessGroup
from .waiting import wait_until

BACKENDS, PREFILL = "backends.txt", "prefill.txt"  # in a case's folder: the shards' URLs as the router was given them


class RouterError(RuntimeError):
    """The router under test could not be started; the message has its command and the end of what it printed."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a router command is told."""

    backends: Sequence[str]
    deadline_s: float
    max_attempts: int
    folder: Path
    stall_after_s: float = 15.0
    client: str = "nemo-gym"
    prefill: Sequence[str] = ()


class RouterUnderTest:
    """A running router and all that it starts. `url` is where clients find it, before and after any restart."""

    def __init__(self, command: str, wiring: Wiring, guard: Guard, *, start_within_s: float = 20.0) -> None:
        self._command = command
        self._wiring = wiring
        self._guard = guard
        self._start_within_s = start_within_s
        self._group: ProcessGroup | None = None

    async def __aenter__(self) -> Self:
        self._lease = PortLease()
        self.port = self._lease.port
        self.url = f"http://127.0.0.1:{self.port}"
        try:
            await self.start()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()
        self._lease.release()

    async def start(self) -> None:
        """Start the process and wait until it answers HTTP on its port. Raises RouterError."""
        argv = fill(self._command, self._wiring, self.port)
        group = self._group = ProcessGroup(argv, guard=self._guard, output=self._wiring.folder / "router.log")
        give_up = time.monotonic() + self._start_within_s
        while not await answers_http(self.url, within_s=self._start_within_s):
            if group.exit_code() is not None:
                raise RouterError(f"the router under test ended with {group.exit_code()}: {self._said()}")
            if time.monotonic() > give_up:
                raise RouterError(
                    f"the router under test gave no HTTP answer in {self._start_within_s:g} s: {self._said()}"
                )
            await asyncio.sleep(0.02)  # the interval of a bounded poll

    async def serves(self, within_s: float) -> bool:
        """Wait until it passes a small generation through: it may answer before it has found its backends.

        Each question gets twice the time of the last: a router may hold one for good that came too early, and another
        may need seconds for its first.
        """
        give_up, patience_s = time.monotonic() + within_s, 1.0
        while not await generates(self.url, within_s=min(patience_s, within_s)):
            if time.monotonic() > give_up:
                return False
            patience_s *= 2
            await asyncio.sleep(0.02)  # the interval of a bounded poll
        return True

    async def stop(self, signum: int = signal.SIGTERM, within_s: float = 10.0) -> None:
        """End the process by a signal, and by SIGKILL if it has not ended in time."""
        await self.end(signum, within_s)

    async def end(self, signum: int = signal.SIGTERM, within_s: float = 10.0) -> int | None:
        """Like `stop`; gives its exit code (negative: by that signal), None if it did not end by itself in time."""
        group = self._group
        if group is None:
            return None
        group.signal(signum)
        await wait_until(lambda: group.exit_code() is not None, within_s)
        code = group.exit_code()
        self._kill()
        return code

    def _kill(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.close()

    def _said(self) -> str:
        return f"{self._command}\n{(self._group and self._group.tail()) or '(it printed nothing)'}"


async def answers_http(url: str, *, within_s: float = 5.0) -> bool:
    """Whether a harmless request gets a status line within `within_s` seconds."""
    question = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    return await status_of(url, question, within_s=within_s) is not None


def fill(command: str, wiring: Wiring, port: int) -> list[str]:
    """The argument list of a router command, its backends file written.

    Raises RouterError for an unknown placeholder, with the known ones, and for a program that does not exist.
    """
    folder = wiring.folder.absolute()  # a router may have another working directory
    backends_file = folder / BACKENDS
    backends_file.write_text("".join(f"{url}\n" for url in wiring.backends))
    (folder / PREFILL).write_text("".join(f"{url}\n" for url in wiring.prefill))
    values = {
        "port": port,
        "backends_csv": ",".join(wiring.backends),
        "backends_file": backends_file,
        "deadline_s": wiring.deadline_s,
        "max_attempts": wiring.max_attempts,
        "stall_after_s": wiring.stall_after_s,
        "client": wiring.client,
        "folder": folder,
    }
    return _arguments(command, {"backends": wiring.backends, "prefill": wiring.prefill}, values)


def find_program(name: str) -> str | None:
    """Where a program is; those of this environment come first, so that an unactivated one works too."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def check_command(command: str) -> None:
    """Raise the RouterError of `fill` before anything is started, and one for a router that is told no port."""
    _arguments(command, {"backends": ["0"], "prefill": ["0"]}, dict.fromkeys(PLACEHOLDERS, 0))
    if "{port" not in command:
        raise RouterError(f"router command {command!r} has no {{port}}: it has to say where the router listens")


def _arguments(command: str, lists: Mapping[str, Sequence[str]], values: Mapping[str, object]) -> list[str]:
    known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise RouterError(f"router command {command!r}: {error}") from error
    if not words:
        raise RouterError(f"router command {command!r} is empty; it needs a program, and knows {known}")
    program = find_program(words[0])
    if program is None:
        raise RouterError(f"router command {command!r}: no program {words[0]!r} on PATH")
    try:
        arguments = [argument for word in words[1:] for argument in _filled(word, lists, values)]
    except (KeyError, IndexError, ValueError) as error:
        raise RouterError(f"router command {command!r}: bad placeholder {error}; known: {known}") from error
    return [program, *arguments]


def _filled(word: str, lists: Mapping[str, Sequence[str]], values: Mapping[str, object]) -> list[str]:
    """The word, once for each URL of the list that it names."""
    for name, urls in lists.items():
        if f"{{{name}}}" in word:
            return [word.format(**{**values, name: url}) for url in urls]
    return [word.format(**values)]
