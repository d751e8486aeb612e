"""Node lists as SLURM writes them: `gpu[01-03,07]`, expanded in list order, which is the order of `SLURM_PROCID`.

`scontrol` knows best, and is asked where it is. Elsewhere the grammar is small enough to be read here: python-hostlist
is GPL, which does not go with Apache-2.0, and ClusterShell sorts, which breaks the order of ranks.
"""

import re
import shutil
import subprocess
from itertools import product

MAX_NODES = 100_000
SCONTROL_TIMEOUT_S = 30.0
_NAME = re.compile(r"(?:[^\s,\[\]]|\[[^\s\[\]]*\])+")
_PART = re.compile(r"\[([^\]]*)\]|([^\[]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class NodeListError(ValueError):
    """A node list cannot be read; the message names it and what is wrong."""


def read_nodelist(text: str) -> tuple[str, ...]:
    """The nodes of a SLURM node list in its order, by `scontrol show hostnames` where it is. Raises NodeListError."""
    if not text.strip():
        raise NodeListError("the node list is empty; outside a SLURM job, host names with commas would be right")
    scontrol = shutil.which("scontrol")
    if scontrol is None or "[" not in text:
        return expand(text)
    command = [scontrol, "show", "hostnames", text]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SCONTROL_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        raise NodeListError(f"node list {text!r}: scontrol says: {error.stderr.strip()}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NodeListError(f"node list {text!r}: scontrol did not expand it: {error}") from None
    return tuple(shown.stdout.split())


def expand(text: str) -> tuple[str, ...]:
    """The nodes of a node list in its order; `a[1-2]b[01,03]` has four. Raises NodeListError."""
    nodes: list[str] = []
    position, text = 0, text.strip()
    while position < len(text):
        match = _NAME.match(text, position)
        if match is None or text[match.end() : match.end() + 1] not in {"", ","} or match.end() == len(text) - 1:
            raise NodeListError(
                f"node list {text!r}: cannot be read at {text[position:]!r}; gpu[01-03,07],login1 would be"
            )
        choices = [_numbers(inside, text) if not plain else [plain] for inside, plain in _PART.findall(match[0])]
        nodes += ("".join(parts) for parts in product(*choices))
        if len(nodes) > MAX_NODES:
            raise NodeListError(f"node list {text!r}: names more than {MAX_NODES} nodes")
        position = match.end() + 1
    return tuple(nodes)


def _numbers(inside: str, text: str) -> list[str]:
    """What a bracket stands for: `01-03,07` is 01, 02, 03, 07, each as wide as its range's first number."""
    numbers: list[str] = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise NodeListError(f"node list {text!r}: {part!r} is no range; 01-03 would be one")
        first, last = match[1], match[2] or match[1]
        if not int(first) <= int(last) < int(first) + MAX_NODES:
            raise NodeListError(f"node list {text!r}: range {part!r} runs backwards or is longer than {MAX_NODES}")
        numbers += (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    return numbers
