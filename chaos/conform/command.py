"""`gym-chaos conform`: judge any router."""

import asyncio
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from ..choices import GYM_ROUTER, PLACEHOLDERS
from ..commands import CONSOLE, ERRORS, INTERRUPTED, progress_bar, refused
from ..provision import ToxiproxyUnavailableError
from ..scenario import ScenarioError
from ..under_test import RouterError
from .findings import Finding, Scorecard, Word
from .run import SCORECARD, ConformError, Judgement, Subject, judge_router
from .table import scorecard

CLIENTS = ("nemo-gym", "openai")


def conform(
    router: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A router that is known by name.")] = None,
    router_cmd: Annotated[
        str | None,
        typer.Option(
            metavar="CMD", help=f"Any other router; knows {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}."
        ),
    ] = None,
    name: Annotated[str, typer.Option(metavar="LABEL", help="What to call that one.")] = "router",
    client: Annotated[str, typer.Option(help=f"By whose contract: {', '.join(CLIENTS)}.")] = CLIENTS[0],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where records go (conform-runs/TIME).")] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="WORD", help="Only this check, or this group.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cases at once.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of prompts and of simulated answers.")] = 0,
) -> None:
    """Judge routers. Exit 0: nothing unsafe; 1: something unsafe; 2: bad input, or something could not be told."""
    if client not in CLIENTS:
        raise refused(ValueError(f"--client {client}: no contract to judge by; known: {', '.join(CLIENTS)}"))
    subjects = _subjects(router or [], router_cmd, name)
    folder = out or Path("conform-runs") / time.strftime("%Y%m%d-%H%M%S")
    # A run that is told to stop cleans up after itself, by whatever signal.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cards = [_judge(Judgement(subject, client), folder / subject.name, only or [], jobs, seed) for subject in subjects]
    raise typer.Exit(exit_code([finding for card in cards for finding in card.findings]))


def exit_code(found: list[Finding]) -> int:
    """1 if anything is unsafe, else 2 if anything is unknown, else 0."""
    words = {finding.word for finding in found}
    return 1 if Word.UNSAFE in words else 2 if Word.UNKNOWN in words or not found else 0


def _subjects(_names: list[str], command: str | None, label: str) -> list[Subject]:
    """The routers that were asked for."""
    return [Subject(label, command or GYM_ROUTER)]


def _judge(judgement: Judgement, folder: Path, only: list[str], jobs: int, seed: int) -> Scorecard:
    """Judge one router, show and write what was found, whatever ended it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with progress_bar() as progress:
            task = progress.add_task("starting")

            def report(what: str, done: int, total: int) -> None:
                progress.update(task, description=f"{judgement.subject.name}: {what}", completed=done, total=total)

            card = asyncio.run(judge_router(judgement, folder, only=only, jobs=jobs, seed=seed, report=report))
    except (ConformError, RouterError, ScenarioError, ToxiproxyUnavailableError, OSError) as error:
        raise refused(error) from error
    except KeyboardInterrupt:
        _tell(judgement.scorecard(complete=False), folder)
        ERRORS.print(f"gym-chaos: interrupted after {len(judgement.runs)} cases; all processes are ended")
        raise typer.Exit(INTERRUPTED) from None
    _tell(card, folder)
    return card


def _tell(card: Scorecard, folder: Path) -> None:
    card.write(folder / SCORECARD)
    CONSOLE.print(scorecard(card))
    CONSOLE.print(f"records: {folder}", soft_wrap=True, highlight=False)
