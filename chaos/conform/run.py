"""A conformance run of one router: its fault cases, some at once, then the probes, one group after the other."""

import asyncio
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self

from gymproof.validators import load_contract

from ..choices import Setup
from ..guard import Guard
from ..recording import load_run, machine
from ..report import write as write_report
from ..runner import run_case
from ..scenario import ScenarioError
from ..stage import Session
from ..summary import write_verdicts
from .faults import FaultCase, fault_cases, without_fault
from .findings import Finding, Group, Scorecard, Word
from .probes import PROBES, Bench, probe
from .verdict import Run, doubt, finding, findings

RUNS = 3  # of a case that says nothing, before that is its verdict
_LOOK_S = 0.1
_SOON_S = 30.0  # a router that is given longer to start is kept from case to case
SCORECARD, REPORT, PROBED = "scorecard.json", "report.html", "probes"  # in a router's folder

Tell = Callable[[str], None]
Report = Callable[[str, int, int], None]  # what is done now, how many cases are done, of how many


class ConformError(RuntimeError):
    """A router cannot be judged at all: it does not start, or does not serve with nothing wrong."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The router that is judged; the fields are those of a `Preset`, with the version that was found."""

    name: str
    command: str
    title: str = ""
    version: str = ""
    settings: str = ""
    session_header: str = ""
    affinity_command: str = ""
    start_within_s: float = 20.0

    @property
    def slow(self) -> bool:
        """Whether it takes so long to start that a run cannot start it for each case."""
        return self.start_within_s > _SOON_S


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a run is to judge: `only` are the words that chose it, none of them for everything."""

    cases: Sequence[FaultCase]
    groups: Sequence[Group]  # of probes
    only: frozenset[str] = frozenset()

    def has(self, finding: Finding) -> bool:
        """Whether this was asked for."""
        return not self.only or finding.check in self.only or finding.group.slug in self.only

    def __len__(self) -> int:
        return len(self.cases) + len(self.groups)


def choose(only: Sequence[str] = (), client: str = "nemo-gym") -> Chosen:
    """The cases and probes whose check or group a word names. Raises ScenarioError for a word that names nothing."""
    cases = fault_cases(client)
    checks = {check for probe in PROBES.values() for check in probe.checks}
    known = {*(case.check for case in cases), *(group.slug for group in Group), *checks}
    unknown = [word for word in only if word not in known]
    if unknown:
        raise ScenarioError(f"--only {unknown[0]}: no such check or group; known: {', '.join(sorted(known))}")
    words = frozenset(only)
    all_cases = not only or Group.RECOVERY.slug in words
    return Chosen(
        [case for case in cases if all_cases or {case.check, case.group.slug} & words],
        [group for group, probe in PROBES.items() if not only or {*probe.checks, group.slug} & words],
        words,
    )


@dataclass
class Judgement:
    """What was found out so far, from the moment when it is made."""

    subject: Subject
    client: str  # "nemo-gym" or "openai"
    chosen: Chosen
    runs: list[Run] = field(default_factory=list)
    probed: list[Sequence[Finding]] = field(default_factory=list)  # by each group of probes
    versions: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.time)

    @property
    def done(self) -> int:
        """Cases and groups of probes."""
        return len(self.runs) + len(self.probed)

    def scorecard(self, *, complete: bool) -> Scorecard:
        """As a value."""
        subject, contract = self.subject, load_contract(self.client)
        return Scorecard(
            router=subject.name,
            title=subject.title or subject.name,
            version=subject.version,
            command=subject.command,
            settings=subject.settings,
            client=f"{contract.client} {contract.version}",
            started=self.started,
            seconds=round(time.time() - self.started, 1),
            complete=complete,
            versions={"gymproof": version("gymproof"), "python": platform.python_version(), **self.versions},
            machine={key: str(value) for key, value in machine().items()},
            findings=tuple(filter(self.chosen.has, (*findings(self.runs), *chain(*self.probed)))),
        )


async def judge_router(
    judgement: Judgement, out: Path, *, jobs: int = 3, seed: int = 0, report: Report = lambda *_: None
) -> Scorecard:
    """Judge a router, `jobs` cases at once, with their records in `out`.

    What is found is in `judgement` at once, so that a run that is cancelled has not been in vain. Raises ConformError,
    RouterError for a command that cannot be run, and OSError for records that cannot be written.
    """
    chosen, subject = judgement.chosen, judgement.subject
    setup = Setup(
        out=out,
        client=f"{judgement.client}-bounded",
        router_cmd=subject.command,
        seed=seed,
        start_within_s=subject.start_within_s,
        keep_router=subject.slow,
    )

    def tell(what: str) -> None:
        report(what, judgement.done, len(chosen))

    async with AsyncExitStack() as stack:
        wanted = max(1, min(jobs, len(chosen.cases)))  # each has a fleet of its own
        sessions = [await stack.enter_async_context(Session(setup)) for _ in range(wanted)]
        tell("without a fault")
        await _check_serves(sessions[0])
        left = sorted(chosen.cases, key=lambda case: not case.silent)  # the long ones first
        try:
            async with asyncio.TaskGroup() as group:
                for session in sessions:
                    group.create_task(_work(session, left, judgement, tell))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        for session in sessions:
            judgement.versions |= await session.versions()
        await _probe(sessions[0].guard, out, judgement, tell)
    return judgement.scorecard(complete=True)


async def _probe(guard: Guard, out: Path, judgement: Judgement, tell: Tell) -> None:
    def heard(found: Sequence[Finding]) -> None:
        judgement.probed.append(found)
        tell("probes")

    subject = judgement.subject
    tell("probes")
    bench = Bench(
        command=subject.command,
        folder=out / PROBED,
        guard=guard,
        session_header=subject.session_header,
        affinity_command=subject.affinity_command,
        client=judgement.client,
        start_within_s=subject.start_within_s,
    )
    await probe(bench, judgement.chosen.groups, heard)


async def _check_serves(session: Session) -> None:
    """Raise ConformError for a router that does not serve a fleet with nothing wrong."""
    for _ in range(RUNS):  # the first requests may find a router that is not warm yet
        result = await run_case(session, without_fault())
        write_verdicts(result)
        lost = [rollout.error for rollout in result.history.rollouts if not rollout.completed] if result.history else []
        why = f"rollouts fail with no fault at all: {lost[0]}" if lost else doubt(result)
        if not why:
            return
    raise ConformError(f"{why}\nrecords: {result.folder}")


async def _work(session: Session, left: list[FaultCase], judgement: Judgement, tell: Tell) -> None:
    """Run what is left, first of all what can go on where the last case was."""
    last: FaultCase | None = None
    while left:
        alike = (case for case in left if last and session.setup.keep_router and case.case.hops == last.case.hops)
        case = last = next(alike, left[0])
        left.remove(case)
        tell(case.case.name)
        judgement.runs.append(await _run(session, case))


async def _run(session: Session, case: FaultCase) -> Run:
    """Run it, again if that says nothing, and leave its records readable."""
    for _ in range(RUNS):
        async with Lag() as lag:
            result = await run_case(session, case.case)
        write_verdicts(result)
        run = Run(case, result, str(result.folder.relative_to(session.setup.out)), lag.worst_s)
        if finding(run).word is not Word.UNKNOWN:
            break
    write_report(load_run(result.folder))
    return run


class Lag:
    """How late the harness itself was at most: a machine that keeps it waiting keeps the router waiting too."""

    worst_s = 0.0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            due = time.monotonic() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            self.worst_s = max(self.worst_s, time.monotonic() - due)
