"""What the `gym-chaos` commands share: the two consoles, and how bad input is refused."""

import typer
from rich.console import Console

CONSOLE = Console()
ERRORS = Console(stderr=True)
BAD_INPUT = 2
INTERRUPTED = 130


def refused(error: Exception) -> typer.Exit:
    """Say why in one line; raise what this returns."""
    ERRORS.print(f"gym-chaos: {error}", style="red", markup=False, soft_wrap=True)
    return typer.Exit(BAD_INPUT)
