"""Seed after seed: drawn, run, judged; what fails is shrunk and written down."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ..checkers import judge
from ..checkers.base import Status, Verdict, worst
from ..scenario import SUFFIX, Case, Scenario, Scope
from ..scenario_toml import dump
from ..virtual.core import Core
from ..virtual.loop import StandstillError
from ..virtual.run import run_virtual
from .shrink import shrink

_SEEDS = 3  # that a smaller scenario is run with before it counts as well

Verdicts = Mapping[str, Verdict]


class Level(Protocol):
    """What runs a case, from a seed of its own."""

    def __call__(self, case: Case, seed: int) -> Verdicts:
        """The verdicts; what keeps a case from running is one too."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A seed that failed, what failed, and the smallest scenario that fails alike."""

    seed: int
    again: int  # the seed with which the smallest one fails
    failed: Verdicts
    smallest: Scenario
    file: Path

    def command(self, replay: str) -> str:
        """The command that runs it again."""
        return replay.format(file=self.file, seed=self.again)


@dataclass(slots=True)
class Tally:
    """How a campaign stands."""

    statuses: Counter[Status] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    untold: str = ""  # why the first seed that could not be run could not
    interrupted: bool = False  # by Ctrl-C or SIGTERM

    @property
    def done(self) -> int:
        """Seeds that were run."""
        return self.statuses.total()

    @property
    def nothing_told(self) -> bool:
        """Whether seeds could not be run, and none passed or failed: what was to be judged was not."""
        return bool(self.untold) and self.statuses[Status.UNKNOWN] == self.done


def virtual_level(core: Core) -> Level:
    """Run cases in virtual time."""

    def run(case: Case, seed: int) -> Verdicts:
        try:
            return judge(run_virtual(case, core, seed), case.scenario.checks)
        except StandstillError as error:
            return {"standstill": Verdict(Status.FAIL, str(error))}
        except Exception as error:  # noqa: BLE001 - whatever broke, this case has not passed and the others go on
            return {"setup": Verdict(Status.UNKNOWN, f"{type(error).__name__}: {error}")}

    return run


def explore(
    seeds: Sequence[int],
    scenario_of: Callable[[int], Scenario],
    level: Level,
    *,
    out: Path,
    budget_s: float,
    most_findings: int,
    replay: str,
    report: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Run the seeds until they, the time or the patience for failures are used up. `replay` goes into each file."""
    tally, last = Tally(), time.monotonic() + budget_s
    with _tidy(level) as run, _until_interrupted(tally):
        for seed in seeds:
            if time.monotonic() >= last or len(tally.findings) >= most_findings:
                break
            scenario = scenario_of(seed)
            verdicts = run(_case(scenario, seed), seed)
            tally.statuses[worst(verdict.status for verdict in verdicts.values())] += 1
            if "setup" in verdicts:
                tally.untold = tally.untold or verdicts["setup"].why
            if failed := _failed(verdicts):
                alike = _Alike(run, seed, failed.keys(), last)
                smallest = shrink(scenario, alike)
                tally.findings.append(
                    _write(Finding(seed, alike.seed, failed, smallest, out / f"seed-{seed}{SUFFIX}"), replay)
                )
            report(tally)
    return tally


def _case(scenario: Scenario, seed: int) -> Case:
    return Case(f"seed-{seed}", scenario, Scope.ONE, Path(f"seed-{seed}{SUFFIX}"))


def _failed(verdicts: Verdicts) -> dict[str, Verdict]:
    return {name: verdict for name, verdict in verdicts.items() if verdict.status is Status.FAIL}


class _Alike:
    """Whether a scenario fails one of `checks`, run with one of some seeds; nothing does once the time is up.

    `seed` is the one that the last scenario failed with. Other seeds than the first are other delays in the network,
    and a smaller scenario may need others.
    """

    def __init__(self, level: Level, seed: int, checks: AbstractSet[str], last: float) -> None:
        self._level = level
        self._checks = checks
        self._last = last
        self.seed = seed

    def __call__(self, scenario: Scenario) -> bool:
        for seed in range(self.seed, self.seed + _SEEDS):
            if time.monotonic() >= self._last:
                return False
            if self._checks & _failed(self._level(_case(scenario, seed), seed)).keys():
                self.seed = seed
                return True
        return False


def _write(found: Finding, replay: str) -> Finding:
    title = f"{', '.join(found.failed)} failed with {', '.join(plan.kind for plan in found.smallest.fault)}"
    why = f"Found by exploring, seed {found.seed}, and shrunk."
    named = found.smallest.model_copy(update={"title": title, "why": why})
    first = next(iter(found.failed.values()))
    found.file.parent.mkdir(parents=True, exist_ok=True)
    found.file.write_text(dump(named, remarks=(first.why, found.command(replay)), whole=False))
    return replace(found, smallest=named)


@contextmanager
def _until_interrupted(tally: Tally) -> Iterator[None]:
    """Ctrl-C ends a campaign early, with all that it had found."""
    try:
        yield
    except KeyboardInterrupt:
        tally.interrupted = True


@contextmanager
def _tidy(level: Level) -> Iterator[Level]:
    """Collect garbage after each run and never in the middle of one.

    A run leaves thousands of objects in cycles. They are cheap to find while they are still in the processor's caches,
    and what was there before the campaign is not looked at again.
    """

    def run(case: Case, seed: int) -> Verdicts:
        try:
            return level(case, seed)
        finally:
            gc.collect()

    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield run
    finally:
        gc.enable()
        gc.unfreeze()
