"""`gym-chaos conform`: judge any router."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..choices import PLACEHOLDERS
from ..commands import BAD_INPUT, CONSOLE, ERRORS, INTERRUPTED, progress_bar, refused
from ..provision import ToxiproxyUnavailableError
from ..scenario import ScenarioError
from ..under_test import RouterError, check_command
from .findings import Finding, Scorecard, Word
from .peers import PRESETS, PresetError, find, missing, version
from .run import REPORT, SCORECARD, ConformError, Judgement, Subject, choose, judge_router
from .scoreboard import render_card
from .table import scorecard

CLIENTS = ("nemo-gym", "openai")


def conform(  # noqa: PLR0917 - typer makes options of them
    router: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help=f"A router known by name: {', '.join(PRESETS)}.")
    ] = None,
    router_cmd: Annotated[
        str | None,
        typer.Option(
            metavar="CMD", help=f"Any other router; knows {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="LABEL", help="What to call that one [router].")] = None,
    session_header: Annotated[str, typer.Option(metavar="NAME", help="The header by which it keeps sessions.")] = "",
    start_within_s: Annotated[
        float, typer.Option(min=0, metavar="S", help="What it may take to start; over 30 s it is kept between cases.")
    ] = 20.0,
    client: Annotated[str, typer.Option(help=f"By whose contract: {', '.join(CLIENTS)}.")] = CLIENTS[0],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where records go (conform-runs/TIME).")] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="WORD", help="Only this check, or this group.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cases at once.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of prompts and of simulated answers.")] = 0,
) -> None:
    """Judge routers. Exit 0: nothing unsafe; 1: something unsafe; 2: bad input, or something could not be told."""
    folder = out or Path("conform-runs") / time.strftime("%Y%m%d-%H%M%S")
    try:
        subjects = [_preset(known) for known in router or ()]
        if router_cmd is not None:
            check_command(router_cmd)
            label = "router" if name is None else name
            subjects.append(Subject(label, router_cmd, session_header=session_header, start_within_s=start_within_s))
        _check_names(subjects, name)
        chosen = choose(only or (), _client(client))
    except (ConformError, PresetError, RouterError, ScenarioError) as error:
        raise refused(error) from error
    # A run that is told to stop cleans up after itself, by whatever signal.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    codes = [exit_code(_judge(Judgement(one, client, chosen), folder / one.name, jobs, seed)) for one in subjects]
    raise typer.Exit(1 if 1 in codes else max(codes))


def exit_code(found: Sequence[Finding]) -> int:
    """1 if anything is unsafe, else 2 if anything is unknown or nothing was asked, else 0."""
    words = {finding.word for finding in found}
    if Word.UNSAFE in words:
        return 1
    return BAD_INPUT if Word.UNKNOWN in words or not words else 0


def _client(name: str) -> str:
    """The name, if there are fault cases for it. Raises ConformError."""
    if name not in CLIENTS:
        raise ConformError(f"--client {name}: no contract to judge by; known: {', '.join(CLIENTS)}")
    return name


def _check_names(subjects: Sequence[Subject], given: str | None) -> None:
    """Raise ConformError if there is none, none of the name that was given, or no folder for the records of each."""
    if not subjects:
        raise ConformError("which router? Name one by --router, or start it by --router-cmd")
    if given is not None and given not in {subject.name for subject in subjects}:
        raise ConformError(f"--name {given}: it is for a --router-cmd, and there is none")
    for subject in subjects:
        if subject.name in {"", ".", ".."} or "/" in subject.name:
            raise ConformError(f"--name {subject.name!r} cannot be that of a folder, where the router's records go")
    name, times = Counter(subject.name for subject in subjects).most_common(1)[0]
    if times > 1:
        raise ConformError(f"{times} routers are called {name!r}: give each once, and another --name to yours")


def _preset(name: str) -> Subject:
    """A router that is known by name. Raises PresetError, and ConformError with what installs it."""
    preset = find(name)
    if lacks := missing(preset):
        raise ConformError(lacks)
    return Subject(
        name=preset.name,
        command=preset.command,
        title=preset.title,
        version=version(preset),
        settings=preset.settings,
        session_header=preset.session_header,
        affinity_command=preset.affinity_command,
        start_within_s=preset.start_within_s,
    )


def _judge(judgement: Judgement, folder: Path, jobs: int, seed: int) -> Sequence[Finding]:
    """Judge one router, show and write what was found, whatever ended it; nothing of one that cannot be judged."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with progress_bar() as progress:
            task = progress.add_task("starting")

            def report(what: str, done: int, total: int) -> None:
                progress.update(task, description=f"{judgement.subject.name}: {what}", completed=done, total=total)

            card = asyncio.run(judge_router(judgement, folder, jobs=jobs, seed=seed, report=report))
    except (ConformError, RouterError) as error:
        refused(error)  # the routers after it can be judged all the same
        return ()
    except (ToxiproxyUnavailableError, OSError) as error:
        raise refused(error) from error
    except KeyboardInterrupt:
        _tell(judgement.scorecard(complete=False), folder)
        ERRORS.print("gym-chaos: interrupted; all processes are ended")
        raise typer.Exit(INTERRUPTED) from None
    _tell(card, folder)
    return card.findings


def _tell(card: Scorecard, folder: Path) -> None:
    card.write(folder / SCORECARD)
    (folder / REPORT).write_text(render_card(card), "utf-8")
    CONSOLE.print(scorecard(card))
    CONSOLE.print(f"{folder / REPORT}", soft_wrap=True, highlight=False)
