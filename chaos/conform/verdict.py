"""What the cases of a run say about a router: from results to findings. Nothing here acts, waits or shows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from gymproof.validators import Contract
from gymproof.validators.status import right_status

from ..history import Attempt, Ending, History
from ..runner import Result
from .faults import FaultCase
from .findings import Finding, Group, Word
from .flaws import AFTERWARDS, UNDER_FAULT, Flaw, Met, phase

ALSO = " Also: "  # between two pieces of advice
_LATE = {"late", "without end"}  # flaws that a machine without time to spare makes too
MOST_LAG_S = 0.3
_NEARLY = 0.9
_STRUCK = (Group.ONE, Group.ALL)
_SHOWN = 4  # pieces of evidence for each flaw
_GRAVEST = (Word.UNSAFE, Word.UNKNOWN, Word.BOUNDED, Word.SAFE)


@dataclass(frozen=True, slots=True)
class Run:
    """A case, and the run of it that counts.

    `records` is its folder, as findings name it; `lag_s` is how late the judge itself was at most.
    """

    case: FaultCase
    result: Result
    records: str = ""
    lag_s: float = 0.0


def doubt(result: Result) -> str:
    """Why a run says nothing about the router, "" if it does."""
    history = result.history
    if history is None:
        return result.verdicts["setup"].why
    inert = next((window for window in history.faults if not window.acted), None)
    if inert is not None:
        return f"{inert.kind} was not seen to act: {inert.detail or 'no reason was recorded'}"
    failed = [one for one in phase(history, "baseline").rollouts if not one.completed]
    if failed:
        return f"a rollout failed before the fault: {failed[0].error}"
    return "" if phase(history, "fault").attempts else "no request met the fault"


def findings(runs: Sequence[Run]) -> list[Finding]:
    """What each case says, and how the fleet came back after each fault, from one shard or from all."""
    by_check = sorted((run for run in runs if run.case.group in _STRUCK), key=lambda run: run.case.check)
    return [
        *map(finding, runs),
        *(_worst([recovery(run) for run in group]) for _, group in groupby(by_check, key=lambda run: run.case.check)),
    ]


def finding(run: Run) -> Finding:
    """What was seen while the fault was on; where no shard is struck, also what was seen afterwards."""
    table = UNDER_FAULT if run.case.group in _STRUCK else {**UNDER_FAULT, **AFTERWARDS}
    made = _judge(run, table)
    return made.model_copy(update={"group": run.case.group, "seconds": round(run.result.seconds, 1)})


def recovery(run: Run) -> Finding:
    """What was seen after the healing."""
    made = _judge(run, AFTERWARDS)
    history = run.result.history
    if made.word is Word.UNKNOWN or history is None:
        return made
    return made.model_copy(update={"seen": _back(history)})


def _judge(run: Run, table: Mapping[str, Flaw]) -> Finding:
    history = run.result.history
    base = Finding(
        group=Group.RECOVERY, check=run.case.check, word=Word.UNKNOWN, seen=doubt(run.result), records=run.records
    )
    if history is None or base.seen:
        return base
    met = Met(run.case, phase(history, "fault"), history)
    found = {name: lines for name, flaw in table.items() if (lines := list(dict.fromkeys(flaw.find(met))))}
    word = min((table[name].word for name in found), key=_GRAVEST.index, default=Word.SAFE)
    grave = [name for name in found if table[name].word is word]
    if run.lag_s > MOST_LAG_S and grave and (set(grave) <= _LATE or _rushed(met)):
        return base.model_copy(update={"seen": f"answers were late, but so was the judge itself, by {run.lag_s:.1f} s"})
    rights = (table[name].right.format(**_statuses(met.contract)) for name in grave)
    return base.model_copy(
        update={
            "word": word,
            "seen": _seen(met.load),
            "right": ALSO.join(dict.fromkeys(rights)),
            "evidence": (*_fault(history), *(line for name in grave for line in found[name][:_SHOWN])),
        }
    )


def _rushed(met: Met) -> bool:
    """Whether a router ran into its deadline although the fault keeps nobody waiting."""
    soon = _NEARLY * met.whole.limits.deadline_s
    took = (one.ended - one.started for one in met.load.attempts if one.ended is not None)
    return not met.case.silent and any(seconds > soon for seconds in took)


def _gravity(finding: Finding) -> int:
    return _GRAVEST.index(finding.word)


def _worst(halves: Sequence[Finding]) -> Finding:
    """One finding of two on the same check."""
    worst = min(halves, key=_gravity)
    return worst.model_copy(update={"seen": "; ".join(dict.fromkeys(half.seen for half in halves))})


def _statuses(contract: Contract) -> dict[str, str]:
    return {
        "endless": ", ".join(map(str, sorted(contract.unbounded_statuses()))),
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
