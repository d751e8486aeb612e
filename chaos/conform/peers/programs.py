"""Whether the program of a preset is on this machine, and which version of it."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from ...under_test import find_program
from .presets import Preset

_ASKED_WITHIN_S = 20.0
_VERSION = re.compile(r"\d+(?:\.\d+)+[^\s,]*")


def missing(preset: Preset) -> str:
    """What the preset lacks here and what installs it, in one line; "" if it can be started."""
    if preset.module and importlib.util.find_spec(preset.module) is None:
        lacks = f"no module {preset.module!r} in {sys.executable}"
    elif find_program(preset.program) is None:
        lacks = f"no program {preset.program!r} on PATH"
    else:
        return ""
    return f"{preset.name}: {lacks}; to install it: {preset.install}"


def version(preset: Preset) -> str:
    """The version that would be started, as the program or the metadata of its environment tells it; "" if neither."""
    path = find_program(preset.program)
    if path is None:
        return ""
    if isinstance(preset.version, tuple):
        return _asked([path, *preset.version])
    # A Python program need not be of this environment: its own interpreter lies beside it.
    python = str(Path(path).resolve().parent / "python")
    return _asked([python, "-c", f"from importlib.metadata import version as of; print(of({preset.version!r}))"])


def _asked(argv: list[str]) -> str:
    try:
        answer = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASKED_WITHIN_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    found = _VERSION.search((answer.stdout + answer.stderr).decode(errors="replace"))  # nginx says it on stderr
    return found.group() if found else ""
