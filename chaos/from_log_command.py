"""`gym-chaos from-log FILE...`: from the logs of an incident to a scenario file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from .commands import CONSOLE, refused
from .incident import Incident, NothingFoundError, infer
from .logs import read_log
from .logs.base import Reading
from .scenario_toml import dump

_SHOWN = 5  # unreadable lines of a file


def from_log(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Logs of any known format.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The scenario file to write.")] = Path(
        "incident.chaos.toml"
    ),
    title: Annotated[str, typer.Option(help="The scenario's title.")] = "An incident",
) -> None:
    """Build a scenario from logs: gym-router events, NeMo-Gym's console, vLLM's output, Prometheus.

    Exit 0: written; 2: a file that cannot be read, or nothing that went wrong in any.
    """
    try:
        readings = [read_log(file.read_text(errors="replace"), file.name) for file in files]
        _say(list(_read(readings)))
        incident = infer(readings, title)
        lines = _told(incident)
        out.write_text(dump(incident.scenario, remarks=lines, whole=False))
    except NothingFoundError as error:
        _say([f"unknown: {reading.file}: {gap}" for reading in readings for gap in reading.gaps])
        raise refused(error) from error
    except OSError as error:
        raise refused(error) from error
    _say([*lines, f"written: {out}"])


def _read(readings: Sequence[Reading]) -> list[str]:
    lines: list[str] = []
    for reading in readings:
        counts = f"{len(reading.signs)} signs, {reading.ignored} other lines, {len(reading.unreadable)} unreadable"
        lines += [f"{reading.file}: {reading.format}: {counts}"]
        lines += [f"  unreadable: {line}" for line in reading.unreadable[:_SHOWN]]
        if len(reading.unreadable) > _SHOWN:
            lines.append(f"  and {len(reading.unreadable) - _SHOWN} more unreadable lines")
    return lines


def _told(incident: Incident) -> list[str]:
    return [*(f"inferred: {line}" for line in incident.inferred), *(f"unknown: {line}" for line in incident.unknown)]


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        CONSOLE.print(line, markup=False, highlight=False, soft_wrap=True)
