"""What the `gym-chaos` commands share: the two consoles, the progress bar, and how bad input is refused."""

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

CONSOLE = Console()
ERRORS = Console(stderr=True)
BAD_INPUT = 2
INTERRUPTED = 130


def progress_bar() -> Progress:
    """A bar that is gone when it is left: what is done, of how many, for how long."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=CONSOLE,
        transient=True,
    )


def refused(error: Exception) -> typer.Exit:
    """Say why in one line; raise what this returns."""
    ERRORS.print(f"gym-chaos: {error}", style="red", markup=False, soft_wrap=True)
    return typer.Exit(BAD_INPUT)
