"""The story of a run: baseline, load, fault, heal, recovery, judgement.

The order of a run and its bounds belong here, and nothing about any one fault, checker or client.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from .checkers import judge
from .checkers.base import Status, Verdict, worst
from .clients.rollouts import run_load
from .faults.base import Fault, RouterFault
from .history import Delivery, FaultWindow, History, Recovery, ShardReport
from .recording import Recording
from .scenario import Case, FaultPlan, Moment
from .stage import Session, Stage, set_stage
from .under_test import answers_http
from .waiting import wait_until
from .witness import Witness

Report = Callable[[str], None]
_IN_FLIGHT_WITHIN_S = 5.0
_PATIENCE_S = 1.0  # what a witness calls silence
_LOAD = "fault"  # the phase of the rollouts that meet the faults
_LOOK_S = 0.003  # between two looks at a shard's log
_REFRESH_S = 3.0  # a shard closes what is idle for 5 s


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one case. `verdicts` has one verdict for each check, or a single "setup" if it could not run."""

    case: Case
    verdicts: dict[str, Verdict]
    folder: Path
    seconds: float
    history: History | None = None

    @property
    def status(self) -> Status:
        """The worst of the verdicts."""
        return worst(verdict.status for verdict in self.verdicts.values())

    def failures(self) -> list[str]:
        """One line for each reason why checks did not pass, with their names."""
        reasons: dict[tuple[Status, str], list[str]] = {}
        for name, verdict in self.verdicts.items():
            if verdict.status is not Status.PASS:
                reasons.setdefault((verdict.status, verdict.why), []).append(name)
        return [f"{', '.join(names)}: {status}: {why}" for (status, why), names in reasons.items()]


async def run_case(session: Session, case: Case, report: Report = lambda _phase: None) -> Result:
    """Run one case from start to judgement. What keeps it from running is a verdict too: never a pass."""
    folder = session.folder(case.name)
    began = time.monotonic()
    with Recording(folder, case, session.setup) as recording:
        try:
            history = await _perform(session, case, recording, report)
        except Exception as error:  # noqa: BLE001 - whatever broke, the other cases go on and this one has not passed
            cause = _first(error)
            verdicts = {"setup": Verdict(Status.UNKNOWN, f"{type(cause).__name__}: {cause}")}
            return Result(case, verdicts, folder, time.monotonic() - began)
        result = Result(case, judge(history, case.scenario.checks), folder, time.monotonic() - began, history)
        recording.end(result.status)
    return result


def _first(error: BaseException) -> BaseException:
    """The first error of a task group's, or the error itself."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def _perform(session: Session, case: Case, recording: Recording, report: Report) -> History:
    report("start")
    async with set_stage(session, case, recording) as stage:
        return await play(stage, report)


async def play(stage: Stage, report: Report = lambda _phase: None) -> History:
    """Tell the whole story of a run on a stage, whatever that is made of."""
    began = time.monotonic()
    report("baseline")
    await _rollouts(stage, "baseline", count=stage.case.scenario.fleet.shards)
    report("load")
    await _load_under_faults(stage, report)
    report("recovery")
    await _recover(stage)
    await _settle(stage)
    for report_of_shard in await _inspect(stage):
        stage.history.add(report_of_shard)
    for served in stage.fleet.served():
        if served.started >= began:
            stage.history.add(served)
    return stage.history


async def _rollouts(stage: Stage, phase: str, *, count: int, name: str = "", turns: int = 1) -> bool:
    """Run some rollouts, all at once but for the scenario's concurrency. Returns whether each of them completed."""
    load = stage.case.scenario.load
    try:
        async with asyncio.timeout(stage.case.scenario.limits.give_up_s):
            rollouts = await run_load(
                stage.client,
                rollouts=count,
                turns=turns,
                concurrency=max(load.concurrency, stage.case.scenario.fleet.shards),
                phase=phase,
                name=f"{phase}{name}",
                max_tokens=load.max_tokens,
                seed=stage.history.limits.seed,
                record=stage.history.add,
            )
    except TimeoutError:
        return False
    return all(rollout.completed for rollout in rollouts)


@dataclass(frozen=True, slots=True)
class _Load:
    """The load that the faults strike into."""

    stage: Stage
    began: float
    ended: asyncio.Event

    def reached(self, moment: Moment) -> bool:
        """Whether so many generations have begun, as the shards' own logs say."""
        shards = self.stage.fleet.shards
        watched = shards if moment.shard is None else [shards[moment.shard]]
        return sum(shard.begun(f"{_LOAD}-", self.began) for shard in watched) >= moment.requests

    async def until(self, moment: Moment, within_s: float = inf) -> bool:
        """Wait until the moment has come or the load has ended; whether one of them did."""
        return await wait_until(lambda: self.ended.is_set() or self.reached(moment), within_s, every_s=_LOOK_S)


async def _load_under_faults(stage: Stage, report: Report) -> None:
    table = stage.case.scenario.load
    load = _Load(stage, time.monotonic(), asyncio.Event())
    async with asyncio.TaskGroup() as group:
        for plan in stage.case.scenario.fault:
            group.create_task(_strike(load, plan, report))
        try:
            await _rollouts(stage, _LOAD, count=table.rollouts, turns=table.turns)
        finally:
            load.ended.set()


async def _strike(load: _Load, plan: FaultPlan, report: Report) -> None:
    """Wait for the moment, do the harm, see that it acts, and heal it whatever happens."""
    stage = load.stage
    if plan.at_s is not None:
        await _until(load.ended, load.began + plan.at_s - time.monotonic())
    shards = stage.case.targets(plan)
    # A witness without routes sees nothing: a fault on the router or its clients says itself that it acted.
    routes, patience_s = [stage.routes[shard] for shard in shards], _PATIENCE_S * stage.fleet.pace
    async with Witness(routes, patience_s=patience_s, asks=stage.witness_asks) as witness:
        missed = await _missed(load, plan, witness)
        report(f"fault: {plan.kind}")
        window = FaultWindow(
            kind=plan.kind,
            layer=plan.fault.layer,
            shards=shards,
            began=time.monotonic(),
            healed=None,
            acted=False,
            detail=missed,
            parameters=plan.fault.model_dump(mode="json"),
        )
        stage.history.add(window)
        try:
            acted, detail = await _harm(stage, plan.fault, shards, witness)
            window = replace(window, acted=acted and not missed, detail=missed or detail)
            await _stay(load, plan)
        finally:
            await asyncio.gather(*(plan.fault.heal(stage.targets[shard]) for shard in shards))
            stage.history.add(replace(window, healed=time.monotonic()))
            report(f"healed: {plan.kind}")


async def _harm(stage: Stage, fault: Fault, shards: Sequence[int], witness: Witness) -> tuple[bool, str]:
    """Do it, and return whether it acts, as seen on a new and on a pooled connection, and what was seen."""
    if isinstance(fault, RouterFault):
        return True, await fault.strike(stage.router, stage.entry_url)
    await asyncio.gather(*(fault.inject(stage.targets[shard]) for shard in shards))
    return await witness.sees(fault)


async def _stay(load: _Load, plan: FaultPlan) -> None:
    """Leave the fault where it is for as long as its plan says."""
    if plan.heal_when is not None:
        await load.until(plan.heal_when)
    elif not isinstance(plan.fault, RouterFault):
        await _until(load.ended, plan.heal_after_s)


async def _missed(load: _Load, plan: FaultPlan, witness: Witness) -> str:
    """Wait for the plan's event, or until the target has work in flight. Why the moment was missed, else ""."""
    every = load.stage.fleet.shards
    watched = [every[shard] for shard in load.stage.case.targets(plan)] or every

    def busy() -> bool:
        return any(shard.in_flight() for shard in watched)

    if plan.at_s is not None:
        return "the load ended before the fault's moment" if load.ended.is_set() else ""
    if plan.when is not None:
        while not await load.until(plan.when, _REFRESH_S):
            await witness.refresh()
        return "" if load.reached(plan.when) else f"the load ended before {plan.when}"
    await wait_until(lambda: load.ended.is_set() or busy(), _IN_FLIGHT_WITHIN_S, every_s=_LOOK_S)
    return "" if busy() else "its target had no work in flight during the load"


async def _until(event: asyncio.Event, within_s: float | None) -> None:
    """Wait for the event, at most `within_s` seconds; None waits for as long as it takes."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return


async def _recover(stage: Stage) -> None:
    """Run small batches of rollouts until one completes and every shard serves again."""
    healed = time.monotonic()
    give_up = healed + stage.case.scenario.limits.recover_within_s
    shards = len(stage.fleet.shards)
    serving: set[int] = set()
    batches = 0
    while time.monotonic() < give_up:
        completed = await _rollouts(stage, "recovery", count=shards, name=str(batches))
        batches += 1
        serving = {
            served.shard
            for served in stage.fleet.served()
            if served.started > healed and served.ending is Delivery.ANSWERED and served.call.startswith("recovery")
        }
        if completed and len(serving) == shards:
            stage.history.add(Recovery(healed, time.monotonic(), tuple(sorted(serving)), f"batch {batches}"))
            return
        if batches % 2 == 0:  # chance may spare a shard once
            await asyncio.sleep(stage.batch_every_s)  # bounded by the loop
    stage.history.add(Recovery(healed, None, tuple(sorted(serving)), f"{batches} batches of rollouts tried"))


async def _settle(stage: Stage) -> None:
    """Give cancelled work the time it is allowed, so that what still runs afterwards was not cancelled."""
    await wait_until(
        lambda: not any(shard.in_flight() for shard in stage.fleet.shards),
        stage.case.scenario.limits.cancel_within_s,
    )


async def _inspect(stage: Stage) -> list[ShardReport]:
    """Look at every shard after the run: whether it is the same process as at the start, and still answers."""
    return [
        ShardReport(
            shard=shard.index,
            same_process=shard.generation == stage.generations[shard.index],
            healthy=await answers_http(shard.url),
        )
        for shard in stage.fleet.shards
    ]
