"""Somebody's router command as a process group, which is gone when its context ends. Nothing here judges it."""

import asyncio
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

from .findings import cannot_tell
from .raw_answer import NotHttpError
from .raw_http import BrokenAnswerError, connect, parse_target

PLACEHOLDERS = ("port", "backends", "backends_csv", "backends_file", "deadline_s", "client")
_POLL_S = 0.05
_TAIL_BYTES = 2000


def arguments(command: str, backends: Sequence[str], values: Mapping[str, object]) -> list[str]:
    """The argument list of a command; `{backends}` becomes one argument for each URL. Raises CannotTellError."""
    known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    try:
        program, *words = shlex.split(command)
        filled = [
            argument
            for word in words
            for argument in (
                backends if word == "{backends}" else [word.format(**values, backends_csv=",".join(backends))]
            )
        ]
    except (ValueError, KeyError, IndexError) as error:
        raise cannot_tell(
            "", "router-cmd", command, f"cannot be filled in: {error}", f"PROGRAM with {known}."
        ) from None
    # The commands of this environment come first, so that an unactivated one works too.
    found = shutil.which(program, path=str(Path(sys.executable).parent)) or shutil.which(program)
    if found is None:
        raise cannot_tell("", "router-cmd", command, f"no program {program!r} on PATH")
    return [found, *filled]


@asynccontextmanager
async def running(
    command: str, backends: Sequence[str], *, deadline_s: float, client: str, start_within_s: float
) -> AsyncIterator[str]:
    """The URL of the router, answering HTTP. Raises CannotTellError with what it printed if it does not."""
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="gymproof-") as folder, tempfile.TemporaryFile() as output:
        values = {"port": port, "deadline_s": deadline_s, "client": client}
        argv = arguments(command, backends, {**values, "backends_file": _written(folder, backends)})
        process = subprocess.Popen(  # noqa: ASYNC220 - the command is the user's, and it returns at once
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            await _answering(f"http://127.0.0.1:{port}", process, command, output, start_within_s)
            yield f"http://127.0.0.1:{port}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _written(folder: str, backends: Sequence[str]) -> Path:
    file = Path(folder, "backends.txt")
    file.write_text("".join(f"{url}\n" for url in backends), "utf-8")
    return file


async def _answering(
    url: str, process: "subprocess.Popen[bytes]", command: str, output: IO[bytes], within_s: float
) -> None:
    target, clock = parse_target(url), asyncio.get_running_loop().time
    give_up = clock() + within_s
    while clock() < give_up and process.poll() is None:
        with suppress(OSError, TimeoutError, BrokenAnswerError, NotHttpError):
            async with asyncio.timeout(within_s), connect(target) as connection:
                await connection.ask(target.request("GET", "/v1/models"))
                return
        await asyncio.sleep(_POLL_S)  # the interval of a bounded poll
    ended = f"ended with {process.returncode}" if process.poll() is not None else f"gave no answer in {within_s:g} s"
    output.seek(0)
    said = output.read()[-_TAIL_BYTES:].decode(errors="replace").strip() or "(it printed nothing)"
    raise cannot_tell("", "router-cmd", command, f"the router {ended}: {said}")


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port
