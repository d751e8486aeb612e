"""`gym-chaos explore`."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..checkers.base import Status
from ..choices import GYM_ROUTER, Setup
from ..commands import BAD_INPUT, CONSOLE, ERRORS, INTERRUPTED, progress_bar, refused
from ..provision import ToxiproxyUnavailableError
from ..scenario import Scenario, ScenarioError, cases, find
from ..scenario_toml import tables
from ..under_test import RouterError
from ..virtual.core import GYM_ROUTER_CORE, CoreError, load_core
from .budget import parse_budget
from .campaign import Finding, Level, Tally, explore, virtual_level
from .draw import NOT_VIRTUAL, REAL_KINDS, VIRTUAL_KINDS, draw
from .real import real_level

_FAILED = 1

_Level = Annotated[
    Literal["virtual", "real"], typer.Option(help="In virtual time inside this process, or with real processes.")
]
_Core = Annotated[str, typer.Option(metavar="MODULE:NAME", help="The router to judge in virtual time.")]
_Command = Annotated[str, typer.Option(metavar="CMD", help="The router to judge with real processes.")]


def explore_command(  # noqa: PLR0917 - typer makes options of them
    scenarios: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE...]", help="Run these in turn instead of drawing them.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds at most.")] = 100_000,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    budget: Annotated[str, typer.Option(metavar="TIME", help="How long at most: 90s, 10m, 1h.")] = "10m",
    level: _Level = "virtual",
    router_core: _Core = GYM_ROUTER_CORE,
    router_cmd: _Command = GYM_ROUTER,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where failures go (chaos-runs/TIME).")] = None,
    most_failures: Annotated[int, typer.Option(min=1, help="Stop after so many failing seeds.")] = 3,
) -> None:
    """Run random faults on random fleets and shrink what fails. Exit 0: nothing failed; 1: a seed did; 2: bad input.

    With 2 ends a campaign of which no seed could be run, too.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = out or Path("chaos-runs") / time.strftime("%Y%m%d-%H%M%S")
    try:
        budget_s = parse_budget(budget)
        scenario_of = _in_turn(scenarios, level) if scenarios else _drawn(level)
        with _running(level, router_core, Setup(out=folder, router_cmd=router_cmd)) as run, _progress(seeds) as report:
            tally = explore(
                range(first_seed, first_seed + seeds),
                scenario_of,
                run,
                out=folder,
                budget_s=budget_s,
                most_findings=most_failures,
                replay=replay_command(level, router_core),
                report=report,
            )
    except (ScenarioError, CoreError, RouterError, ToxiproxyUnavailableError, ValueError, OSError) as error:
        raise refused(error) from error
    _tell(tally, level, router_core)
    raise typer.Exit(_exit_code(tally))


def _exit_code(tally: Tally) -> int:
    if tally.interrupted:
        return INTERRUPTED
    if tally.findings:
        return _FAILED
    return BAD_INPUT if tally.nothing_told else 0


def _running(level: str, router_core: str, setup: Setup) -> AbstractContextManager[Level]:
    return nullcontext(virtual_level(load_core(router_core))) if level == "virtual" else real_level(setup)


def _drawn(level: str) -> Callable[[int], Scenario]:
    kinds = VIRTUAL_KINDS if level == "virtual" else REAL_KINDS
    return lambda seed: draw(seed, kinds)


def _in_turn(names: Sequence[str], level: str) -> Callable[[int], Scenario]:
    """The cases of the named scenarios, one a seed. Raises ScenarioError for one that cannot be run on this level."""
    chosen = []
    for case in (case for path in find(names) for case in cases(path)):
        barred = [plan.kind for plan in case.scenario.fault if plan.kind in NOT_VIRTUAL]
        if level == "virtual" and barred:
            raise ScenarioError(f"{case.name}: there is no {barred[0]} in virtual time; --level real would be right")
        faults = [
            fault if not case.targets(plan) else {**fault, "shards": list(case.targets(plan))}
            for plan, fault in zip(case.scenario.fault, tables(case.scenario)["fault"], strict=True)
        ]
        chosen.append(Scenario.model_validate({**tables(case.scenario), "fault": faults}))
    return lambda seed: chosen[seed % len(chosen)]


def replay_command(level: str, router_core: str) -> str:
    """The command that runs a failure again, with places for its file and its seed."""
    if level == "real":
        return "gym-chaos run {file}"
    core = "" if router_core == GYM_ROUTER_CORE else f" --router-core {router_core}"
    return f"gym-chaos explore {{file}} --first-seed {{seed}} --seeds 1{core}"


@contextmanager
def _progress(seeds: int) -> Iterator[Callable[[Tally], None]]:
    with progress_bar() as progress:
        task = progress.add_task("exploring", total=seeds)

        def report(tally: Tally) -> None:
            progress.update(task, completed=tally.done, description=f"{len(tally.findings)} failed")

        yield report


def _tell(tally: Tally, level: str, router_core: str) -> None:
    for finding in tally.findings:
        _show(finding, replay_command(level, router_core))
    if tally.untold:
        CONSOLE.print(f"could not be run: {tally.untold}", markup=False, highlight=False, soft_wrap=True)
    if tally.interrupted:
        ERRORS.print("gym-chaos: interrupted")
    counts = ", ".join(f"{tally.statuses[status]} {status}" for status in Status)
    CONSOLE.print(f"{tally.done} seeds: {counts}", highlight=False)


def _show(finding: Finding, replay: str) -> None:
    lines = [f"seed {finding.seed} fails:"]
    lines += [f"  {name}: {verdict.why}" for name, verdict in finding.failed.items()]
    lines += [f"  smallest: {finding.file}", f"  again: {finding.command(replay)}"]
    CONSOLE.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
