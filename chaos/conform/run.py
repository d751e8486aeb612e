"""A conformance run of one router: its fault cases, some at once, then the probes."""

import asyncio
import platform
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from gymproof.validators import load_contract

from ..choices import Setup
from ..recording import load_run, machine
from ..report import write as write_report
from ..runner import run_case
from ..scenario import ScenarioError
from ..stage import Session
from ..summary import write_verdicts
from .faults import FaultCase, fault_cases, without_fault
from .findings import Finding, Group, Scorecard
from .verdict import Run, doubt, findings

RUNS = 3  # of a case that says nothing, before that is its verdict
SCORECARD = "scorecard.json"

Report = Callable[[str, int, int], None]  # what is done now, how many cases are done, of how many


def _silent(_what: str, _done: int, _total: int) -> None:
    """Tell nobody."""


class ConformError(RuntimeError):
    """A router cannot be judged at all: it does not start, or does not serve with nothing wrong."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The router that is judged."""

    name: str
    command: str  # a `--router-cmd` template
    title: str = ""
    version: str = ""
    settings: str = ""
    notes: str = ""
    start_within_s: float = 20.0


@dataclass
class Judgement:
    """What was found out so far."""

    subject: Subject
    client: str  # "nemo-gym" or "openai"
    runs: list[Run] = field(default_factory=list)
    probed: list[Finding] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.time)

    def scorecard(self, *, complete: bool) -> Scorecard:
        """As a value."""
        subject, contract = self.subject, load_contract(self.client)
        return Scorecard(
            router=subject.name,
            title=subject.title or subject.name,
            version=subject.version,
            command=subject.command,
            settings=subject.settings,
            notes=subject.notes,
            client=f"{contract.client} {contract.version}",
            started=self.started,
            seconds=round(time.time() - self.started, 1),
            complete=complete,
            versions={"gymproof": version("gymproof"), "python": platform.python_version(), **self.versions},
            machine={key: str(value) for key, value in machine().items()},
            findings=(*findings(self.runs), *self.probed),
        )


async def judge_router(
    judgement: Judgement, out: Path, *, only: Sequence[str] = (), jobs: int = 3, seed: int = 0, report: Report = _silent
) -> Scorecard:
    """Judge a router by the chosen checks, `jobs` cases at once, and write its scorecard into `out`.

    What is found is in `judgement` at once, so that a run that is cancelled has not been in vain. Raises ConformError,
    RouterError for a command that cannot be run, and ScenarioError for a word of `only` that names nothing.
    """
    chosen = choose(only)
    subject = judgement.subject
    setup = Setup(
        out=out,
        client=f"{judgement.client}-bounded",
        router_cmd=subject.command,
        seed=seed,
        start_within_s=subject.start_within_s,
    )

    def tell(what: str) -> None:
        report(what, len(judgement.runs), len(chosen))

    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(Session(setup)) for _ in range(jobs)]
        tell("without a fault")
        await _check_serves(sessions[0])
        judgement.versions |= await sessions[0].versions()
        queue = deque(sorted(chosen, key=lambda case: not case.silent))  # the long ones first
        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(_work(session, queue, judgement, tell))
    return judgement.scorecard(complete=True)


def choose(only: Sequence[str]) -> list[FaultCase]:
    """The cases whose check or group a word names; all of them if there is no word. Raises ScenarioError."""
    cases = fault_cases()
    known = {*(case.check for case in cases), *(group.name.lower() for group in Group)}
    unknown = [word for word in only if word not in known]
    if unknown:
        raise ScenarioError(f"--only {unknown[0]}: no such check or group; known: {', '.join(sorted(known))}")
    names = set(only) | ({"one", "all"} if "recovery" in only else set())
    return [case for case in cases if not only or {case.check, case.group.name.lower()} & names]


async def _check_serves(session: Session) -> None:
    result = await run_case(session, without_fault())
    lost = [rollout.error for rollout in result.history.rollouts if not rollout.completed] if result.history else []
    why = doubt(result) or (lost and f"rollouts fail with no fault at all: {lost[0]}")
    if why:
        raise ConformError(f"{why}\nrecords: {result.folder}")


async def _work(session: Session, queue: deque[FaultCase], judgement: Judgement, tell: Callable[[str], None]) -> None:
    while queue:
        case = queue.popleft()
        tell(case.case.name)
        judgement.runs.append(await _run(session, case))


async def _run(session: Session, case: FaultCase) -> Run:
    """Run it, again if that says nothing, and leave its records readable."""
    for _ in range(RUNS):
        result = await run_case(session, case.case)
        write_verdicts(result)
        if not doubt(result):
            break
    write_report(load_run(result.folder))
    return Run(case, result, str(result.folder.relative_to(session.setup.out)))
