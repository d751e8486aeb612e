"""`gym-chaos gate`: what a merge has to pass, within a time budget.

First the shipped scenarios with real processes, those first that break most routers; then drawn ones, for the rest of
the time: in virtual time where the router has a core for it, else with real processes too.
"""

import signal
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from .checkers.base import Status, passed, unknown
from .choices import GYM_ROUTER, Setup, without_prefill
from .commands import CONSOLE, ERRORS, INTERRUPTED, refused
from .explore.budget import parse_budget
from .explore.campaign import Finding, explore, virtual_level
from .explore.cli import replay_command
from .explore.draw import REAL_KINDS, VIRTUAL_KINDS, draw
from .explore.real import real_level
from .judging import judge_all, tell
from .provision import ToxiproxyUnavailableError
from .runner import Result
from .scenario import Case, Scope, cases, shipped
from .stage import Session
from .summary import exit_code
from .under_test import RouterError
from .virtual.core import GYM_ROUTER_CORE, CoreError, load_core

# One of each way to break; the other shipped scenarios follow while there is time.
FIRST = (
    *("kill_engine", "stop_engine", "status_503", "cut_body_length_fin", "stall", "hang_ups", "abort"),
    *("wedge_watch", "kill_group", "refused", "router_kill", "keepalive_race", "status_429", "stop_server"),
)
SHARE = 2 / 3  # of the budget, for the shipped scenarios
_SEEDS = 1_000_000


def gate(
    budget: Annotated[str, typer.Option(metavar="TIME", help="How long it may take: 90s, 3m.")] = "3m",
    first_seed: Annotated[int, typer.Option(min=0, help="Of the drawn ones: another for each pipeline.")] = 0,
    router_cmd: Annotated[str, typer.Option(metavar="CMD", help="The router to judge.")] = GYM_ROUTER,
    router_core: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="The same for virtual time (gym-router's own, if it is that)."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where records go (chaos-runs/TIME).")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML.")] = None,
) -> None:
    """Judge a router before a merge. Exit 0: nothing failed; 1: a case or a seed did; 2: bad input, or untold."""
    began = time.monotonic()
    setup = Setup(out=out or Path("chaos-runs") / time.strftime("%Y%m%d-%H%M%S"), router_cmd=router_cmd)
    core = router_core or (GYM_ROUTER_CORE if router_cmd == GYM_ROUTER else None)
    pairs = not without_prefill(setup.fleet, router_cmd)
    chosen = [case for case in ordered() if pairs or not case.scenario.fleet.prefill]
    results = list[Result]()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        budget_s = parse_budget(budget)
        if core is not None:
            load_core(core)  # so that a wrong one is refused before the shipped scenarios have run
        session = Session(setup)
        setup.out.mkdir(parents=True, exist_ok=True)
        if junit is not None:
            junit.parent.mkdir(parents=True, exist_ok=True)
            junit.open("a").close()
        judge_all(chosen, session, results, last=began + SHARE * budget_s)
        CONSOLE.print(f"{len(results)} of {len(chosen)} shipped cases were reached", highlight=False)
        results += explored(setup, core, first_seed, began + budget_s - time.monotonic())
    except (RouterError, CoreError, ToxiproxyUnavailableError, ValueError, OSError) as error:
        raise refused(error) from error
    finally:
        tell(results, junit)
    raise typer.Exit(exit_code(results))


def ordered() -> list[Case]:
    """All cases of the shipped scenarios, those of `FIRST` first."""
    files = {path.name.split(".")[0]: path for path in shipped()}
    names = [*FIRST, *(name for name in files if name not in FIRST)]
    return [case for name in names for case in cases(files[name])]


def explored(setup: Setup, core: str | None, first_seed: int, budget_s: float) -> list[Result]:
    """A result for each failing seed, and one for all that passed. The failing ones are printed to be replayed.

    Seeds that drew a fault for a moment that never came say nothing, and are no result.
    """
    began = time.monotonic()
    kinds, level = (REAL_KINDS, "real") if core is None else (VIRTUAL_KINDS, "virtual")
    running = real_level(setup) if core is None else nullcontext(virtual_level(load_core(core)))
    replay = replay_command(level, core or GYM_ROUTER_CORE)
    with running as run:
        tally = explore(
            range(first_seed, first_seed + _SEEDS),
            lambda seed: draw(seed, kinds),
            run,
            out=setup.out,
            budget_s=max(budget_s, 1.0),
            most_findings=3,
            replay=replay,
        )
    if tally.interrupted:
        ERRORS.print(f"gym-chaos: interrupted after {tally.done} drawn seeds")
        raise typer.Exit(INTERRUPTED)
    for finding in tally.findings:
        CONSOLE.print(f"seed {finding.seed} fails; again: {finding.command(replay)}", highlight=False, soft_wrap=True)
    counts = ", ".join(f"{tally.statuses[status]} {status}" for status in Status)
    CONSOLE.print(f"{tally.done} drawn seeds from {first_seed}: {counts}", highlight=False)
    held = Result(
        Case("explored", draw(first_seed, kinds), Scope.ONE, setup.out),
        {"explore": passed(counts)},
        setup.out,
        time.monotonic() - began,
    )
    if tally.nothing_told:
        held = replace(held, verdicts={"explore": unknown(f"no seed could be run, the first one: {tally.untold}")})
    told = tally.statuses[Status.PASS] or tally.nothing_told
    return [*_failed(tally.findings, setup.out), *([held] if told else [])]


def _failed(findings: Sequence[Finding], out: Path) -> list[Result]:
    return [
        Result(Case(f"seed-{found.seed}", found.smallest, Scope.ONE, found.file), dict(found.failed), out, 0.0)
        for found in findings
    ]
