"""What the cases of a run say about a router: from results to findings. Nothing here acts, waits or shows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

from gymproof.validators import Contract
from gymproof.validators.status import right_status

from ..clients.bounded import NOT_OFFERED
from ..history import Attempt, Ending, History
from ..runner import Result
from .faults import FaultCase
from .findings import Finding, Group, Word
from .flaws import AFTERWARDS, UNDER_FAULT, Flaw, Met, phase

_SHOWN = 4  # pieces of evidence for each flaw
_GRAVEST = (Word.UNSAFE, Word.UNKNOWN, Word.BOUNDED, Word.SAFE)


@dataclass(frozen=True, slots=True)
class Run:
    """A case, and the run of it that counts. `records` is its folder, as findings name it."""

    case: FaultCase
    result: Result
    records: str = ""


def doubt(result: Result) -> str:
    """Why a run says nothing about the router, "" if it does."""
    history = result.history
    if history is None:
        return result.failures()[0]
    inert = next((window for window in history.faults if not window.acted), None)
    if inert is not None:
        return f"{inert.kind} was not seen to act: {inert.detail or 'no reason was recorded'}"
    failed = [one for one in phase(history, "baseline").rollouts if not one.completed]
    if failed:
        return f"a rollout failed before the fault: {failed[0].error}"
    return "" if phase(history, "fault").attempts else "no request met the fault"


def findings(runs: Sequence[Run]) -> list[Finding]:
    """One finding for each case, and one on the recovery after each fault, whatever it was on."""
    struck = [run for run in runs if run.case.group is not Group.RECOVERY]
    by_check = groupby(sorted(struck, key=lambda run: run.case.check), key=lambda run: run.case.check)
    return [*map(finding, runs), *(_worst([recovery(run) for run in group]) for _, group in by_check)]


def finding(run: Run) -> Finding:
    """What was seen while the fault was on; of a case that strikes no shard, also what was seen afterwards."""
    table = UNDER_FAULT if run.case.group is not Group.RECOVERY else {**UNDER_FAULT, **AFTERWARDS}
    made = _judge(run, table)
    return made.model_copy(update={"group": run.case.group, "seconds": round(run.result.seconds, 1)})


def recovery(run: Run) -> Finding:
    """What was seen after the healing."""
    return _judge(run, AFTERWARDS)


def _judge(run: Run, table: Mapping[str, Flaw]) -> Finding:
    history = run.result.history
    base = Finding(
        group=Group.RECOVERY, check=run.case.check, word=Word.UNKNOWN, seen=doubt(run.result), records=run.records
    )
    if history is None or base.seen:
        return base
    met = _met(run.case, history)
    found = {flaw: lines for flaw in table.values() if (lines := list(dict.fromkeys(flaw.find(met))))}
    word = min((flaw.word for flaw in found), key=_GRAVEST.index, default=Word.SAFE)
    grave = {flaw: lines for flaw, lines in found.items() if flaw.word is word}
    words = _statuses(met.contract)
    return base.model_copy(
        update={
            "word": word,
            "seen": _back(history) if table is AFTERWARDS else _seen(met.load),
            "right": " ".join(dict.fromkeys(flaw.right.format(**words) for flaw in grave)),
            "evidence": (*_fault(history), *(line for lines in grave.values() for line in islice(lines, _SHOWN))),
        }
    )


def _met(case: FaultCase, history: History) -> Met:
    load = phase(history, "fault")
    missing = {one.path for one in history.attempts if one.call.startswith("baseline") and one.status in NOT_OFFERED}
    offered = [one for one in load.attempts if one.path not in missing]
    return Met(case, replace(load, attempts=offered), history)


def _worst(halves: Sequence[Finding]) -> Finding:
    """One finding of two on the same check."""
    worst = min(halves, key=lambda half: _GRAVEST.index(half.word))
    return worst.model_copy(update={"seen": "; ".join(dict.fromkeys(half.seen for half in halves))})


def _statuses(contract: Contract) -> dict[str, str]:
    *most, last = map(str, sorted(contract.unbounded_statuses())) or ("a status",)
    return {
        "endless": f"{', '.join(most)} or {last}" if most else last,
        "retry": str(right_status("retry", contract)),
        "give_up": str(right_status("give_up", contract)),
    }


def _seen(load: History) -> str:
    """Such as "200x18 503x6, slowest 3.1 s, 14 of 16 rollouts"."""
    counts = Counter(map(_label, load.attempts))
    slowest = max((one.ended - one.started for one in load.attempts if one.ended is not None), default=0.0)
    done = sum(one.completed for one in load.rollouts)
    answers = " ".join(f"{label}x{count}" for label, count in counts.most_common())
    return f"{answers}, slowest {slowest:.1f} s, {done} of {len(load.rollouts)} rollouts"


def _label(attempt: Attempt) -> str:
    if attempt.ending is Ending.COMPLETE:
        return str(attempt.status)
    return "no answer in time" if attempt.ending in (Ending.CLIENT_LEFT, Ending.PENDING) else attempt.ending


def _back(history: History) -> str:
    recovery = history.recovery
    if recovery is None:
        return "not looked at"
    if recovery.recovered is not None:
        return f"every shard served {recovery.recovered - recovery.healed:.1f} s after the healing"
    served = ", ".join(map(str, recovery.serving)) or "none"
    return f"shards that served within {history.limits.recover_within_s:g} s: {served}"


def _fault(history: History) -> Iterable[str]:
    for window in history.faults:
        where = f"on shards {list(window.shards)} of {history.limits.shards}" if window.shards else "by clients"
        yield f"{window.kind} {where}: {window.detail}"
