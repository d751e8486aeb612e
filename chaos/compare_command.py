"""`gym-chaos diff A B` and `gym-chaos replay DIR`: two runs of one schedule, side by side."""

import asyncio
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from .choices import Setup
from .commands import CONSOLE, ERRORS, INTERRUPTED, refused
from .compare import Comparison, agreement, compare
from .provision import ToxiproxyUnavailableError
from .recording import RecordingError, RunFolder, load_run, load_runs
from .runner import run_case
from .scenario import ScenarioError
from .stage import Session
from .summary import write_verdicts
from .under_test import RouterError

_DIFFERS = 1
_SHOWN = 20  # requests that did not go the same way; a broken router leaves hundreds


def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="The folder of a run, or of several.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The folder of the run to compare it with.")],
) -> None:
    """Compare two runs request by request. Exit 0: the same verdicts; 1: they differ; 2: bad input."""
    try:
        pairs = list(_pairs(load_runs(a), load_runs(b)))
    except RecordingError as error:
        raise refused(error) from error
    differs = [name for name, one, other in pairs if not _show(name, one, other)]
    raise typer.Exit(_DIFFERS if differs else 0)


def replay(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run, or of several.")],
    times: Annotated[int, typer.Option(min=1, help="How often.")] = 1,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the new runs go (chaos-runs/TIME).")] = None,
    router_cmd: Annotated[
        str | None, typer.Option(metavar="CMD", help="Another router than the recorded run's, such as a mended one.")
    ] = None,
    toxiproxy_url: Annotated[
        str | None, typer.Option(metavar="URL", help="A Toxiproxy server that already runs.")
    ] = None,
    vllm_python: Annotated[str | None, typer.Option(metavar="FILE", help="The interpreter that has vLLM.")] = None,
) -> None:
    """Run a recorded schedule again. Exit 0: the same verdicts each time; 1: they differ; 2: bad input."""
    given = {"router_cmd": router_cmd, "toxiproxy_url": toxiproxy_url, "vllm_python": vllm_python}
    given["out"] = str(out or Path("chaos-runs") / time.strftime("%Y%m%d-%H%M%S"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = load_runs(folder)
        setups = [_setup(run, {name: value for name, value in given.items() if value is not None}) for run in found]
        CONSOLE.print(f"replaying {len(found)} of {folder}, {times} times   records: {given['out']}", soft_wrap=True)
        same = asyncio.run(_replay_all(found, setups, times))
    except (RecordingError, ScenarioError, RouterError, ToxiproxyUnavailableError, OSError) as error:
        raise refused(error) from error
    except KeyboardInterrupt:
        ERRORS.print("gym-chaos: interrupted; all processes are ended")
        raise typer.Exit(INTERRUPTED) from None
    CONSOLE.print(f"the same verdicts in {sum(same)} of {len(same)} runs")
    raise typer.Exit(0 if all(same) else _DIFFERS)


async def _replay_all(found: Sequence[RunFolder], setups: Sequence[Setup], times: int) -> list[bool]:
    """Run each as often as asked; whether its verdicts were the recorded ones, for each run."""
    same: list[bool] = []
    for setup, group in groupby(zip(found, setups, strict=True), key=lambda pair: pair[1]):
        recorded = [run for run, _ in group]
        setup.out.mkdir(parents=True, exist_ok=True)
        async with Session(setup) as session:
            for run in recorded * times:
                result = await run_case(session, run.case)
                write_verdicts(result)
                same.append(_show(run.case.name, run, load_run(result.folder)))
    return same


def _setup(run: RunFolder, given: dict[str, str]) -> Setup:
    """The options of the recorded run, but for those that are given now. Its client is the one that it had."""
    known = {field.name for field in fields(Setup)}
    recorded = {name: value for name, value in run.about.setup.items() if name in known}
    client = run.history.limits.client if run.history else recorded.get("client", "auto")
    setup = Setup(**{**recorded, **given, "client": client, "vllm_args": tuple(recorded.get("vllm_args", ()))})
    return replace(setup, out=Path(setup.out))


def _pairs(a: Sequence[RunFolder], b: Sequence[RunFolder]) -> Iterator[tuple[str, RunFolder, RunFolder]]:
    """The runs of one case in two folders; two runs that stand alone are compared whatever their names."""
    if len(a) == len(b) == 1:
        yield a[0].case.name, a[0], b[0]
        return
    others = {run.case.name: run for run in b}
    missing = sorted({run.case.name for run in a} ^ others.keys())
    if missing:
        raise RecordingError(f"{missing[0]}: only one of the two folders has a run of it")
    yield from ((run.case.name, run, others[run.case.name]) for run in a)


def _show(name: str, a: RunFolder, b: RunFolder) -> bool:
    """Print where two runs agree and differ; whether their verdicts are the same."""
    found = compare(a, b)
    for line in (*_doubts(a, b), *describe(name, found)):
        CONSOLE.print(line, markup=False, highlight=False, soft_wrap=True)
    return found.same_verdicts


def _doubts(a: RunFolder, b: RunFolder) -> Iterator[str]:
    """Why a difference may say nothing about the router."""
    for run in (a, b):
        if not run.complete:
            yield f"{run.path}: incomplete: it was cut off, and what it had is compared"
        if run.unreadable:
            yield f"{run.path}: left out, being no records: {'; '.join(run.unreadable)}"
    if a.case.scenario != b.case.scenario:
        yield f"{a.path} and {b.path} are not of the same scenario"


def describe(name: str, found: Comparison) -> list[str]:
    """One line in all, and one for each verdict and request that is not the same."""
    counts = {str(kind): count for kind, count in found.counts().items() if count}
    same = sum(a is b for a, b in found.verdicts.values())
    parts = ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "none"
    lines = [f"{name}: requests: {parts}; verdicts: {same} of {len(found.verdicts)} the same"]
    lines += [f"  {check}: {a or '-'} | {b or '-'}" for check, (a, b) in found.verdicts.items() if a is not b]
    differing = found.differing()
    for (call, path), (one, other) in list(differing.items())[:_SHOWN]:
        lines.append(f"  {call} {path}: {agreement(one, other)}: {one or '-'} | {other or '-'}")
    if len(differing) > _SHOWN:
        lines.append(f"  and {len(differing) - _SHOWN} more requests")
    return lines
