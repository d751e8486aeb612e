"""The tiny model: made once on this machine, kept in the user's cache, used by every run."""

import asyncio
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ..guard import Guard
from ..processes import ProcessGroup
from .inside import PROGRAMS

_REVISION = 1  # of the program that makes it: another model, another folder
_MADE_WITHIN_S = 180.0


class ModelError(RuntimeError):
    """The tiny model could not be made; the message has the end of what its program printed."""


def cache_folder() -> Path:
    """Where this user's tiny model is kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "gymproof" / f"tiny-model-{_REVISION}"


async def tiny_model(python: Path, guard: Guard) -> Path:
    """The folder of the tiny model, made now if need be, which takes ten seconds. Raises ModelError."""
    folder = cache_folder()
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="tiny-model-") as temporary:
        made = Path(temporary) / "model"
        await _make(python, made, Path(temporary) / "output", guard)
        # Moved into place when it is whole. Another run may have been quicker: its model is the same one.
        with suppress(OSError):
            made.rename(folder)
    return folder


async def _make(python: Path, folder: Path, output: Path, guard: Guard) -> None:
    program = ProcessGroup(
        [str(python), str(PROGRAMS / "gymproof_tiny_model.py"), str(folder)], guard=guard, output=output
    )
    last = time.monotonic() + _MADE_WITHIN_S
    try:
        while (code := program.exit_code()) is None:
            if time.monotonic() > last:
                raise ModelError(f"making the tiny model takes over {_MADE_WITHIN_S:g} s:\n{program.tail()}")
            await asyncio.sleep(0.05)  # the interval of a bounded poll
        if code != 0:
            raise ModelError(f"making the tiny model failed:\n{program.tail()}")
    finally:
        program.close()
