"""`gym-chaos report`: the reports of recorded runs, made again."""

from pathlib import Path
from typing import Annotated

import typer

from ..commands import refused
from ..recording import RecordingError, load_runs
from .pages import FORMATS, render, write


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder, or one of several runs.")],
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "html",
    *,
    stdout: Annotated[bool, typer.Option("--stdout", help="Print it, to be piped into a ticket.")] = False,
) -> None:
    """Write report.html or report.md into each run's folder. Exit 2: no record of a run, or an unknown format."""
    if form not in FORMATS:
        raise refused(ValueError(f"unknown format {form!r}; known: {', '.join(FORMATS)}"))
    try:
        runs = load_runs(folder)
    except RecordingError as error:
        raise refused(error) from error
    for run in runs:
        typer.echo(render(run, form) if stdout else write(run, form))
