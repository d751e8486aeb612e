"""A run in words: what was done to which shard, what the clients saw, the verdicts, and the first cause."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ..checkers.base import Status, Verdict, worst
from ..checkers.evidence import overlaps
from ..history import Attempt, FaultWindow, History
from .evidence import Failure, named_calls, saw

_WORDS = {Status.PASS: "passed", Status.FAIL: "failed", Status.UNKNOWN: "could not be told"}


def story(
    history: History | None, verdicts: Mapping[str, Verdict], failed: Sequence[Failure], zero: float
) -> list[str]:
    """Sentences for people who were not there, the most important one last."""
    if history is None:
        untold = [verdict.why for verdict in verdicts.values() if verdict.status is Status.UNKNOWN]
        return [f"Could not be judged: {why}" for why in untold] or ["There is no record of what happened."]
    sentences = [_setting(history)]
    sentences += [_done(window, zero) for window in sorted(history.faults, key=lambda window: window.began)]
    sentences += [_seen(history), _finished(history), *_recovered(history), _verdict(verdicts)]
    if failed and (cause := first_cause(history, failed, zero)):
        sentences.append(cause)
    return sentences


def title(verdicts: Mapping[str, Verdict]) -> str:
    """The verdict on the run in one word."""
    return _WORDS[worst(verdict.status for verdict in verdicts.values())] if verdicts else "incomplete"


def _setting(history: History) -> str:
    limits = history.limits
    prefill = f", {limits.prefill} of them prefill servers" if limits.prefill else ""
    return (
        f"{limits.client} drove {len(history.rollouts)} rollouts through the router to {limits.shards} "
        f"{'shard' if limits.shards == 1 else 'shards'}{prefill}; each request had {limits.deadline_s:g} s."
    )


def _done(window: FaultWindow, zero: float) -> str:
    given = ", ".join(f"{name} {value}" for name, value in window.parameters.items() if name != "kind")
    healed = "was never healed" if window.healed is None else f"was healed at {window.healed - zero:.2f} s"
    acted = "" if window.acted else " It was not seen to act."
    what = f"{window.kind} ({given})" if given else window.kind
    return f"At {window.began - zero:.2f} s {_whom(window)} got {what}, which {healed}.{acted}"


def _whom(window: FaultWindow) -> str:
    if not window.shards:
        return f"the {window.layer}"
    return f"shard{'' if len(window.shards) == 1 else 's'} {', '.join(map(str, window.shards))}"


def _seen(history: History) -> str:
    seen = Counter(saw(attempt).split(" (")[0] for attempt in history.attempts)
    return "The clients saw " + ", ".join(f"{what} {count} times" for what, count in seen.most_common()) + "."


def _finished(history: History) -> str:
    lost = [rollout for rollout in history.rollouts if not rollout.completed]
    if not lost:
        return "Every rollout completed."
    phases = Counter(rollout.phase for rollout in lost)
    when = ", ".join(f"{count} of phase {phase}" for phase, count in phases.items())
    return f"{len(lost)} of {len(history.rollouts)} rollouts were lost: {when}."


def _recovered(history: History) -> list[str]:
    recovery = history.recovery
    if recovery is None:
        return []
    if recovery.recovered is None:
        return [f"The fleet did not recover: {recovery.detail}."]
    return [f"{recovery.recovered - recovery.healed:.2f} s after the last fault was healed every shard served again."]


def _verdict(verdicts: Mapping[str, Verdict]) -> str:
    if not verdicts:
        return "No check has judged it."
    names = {status: [name for name, verdict in verdicts.items() if verdict.status is status] for status in Status}
    if not names[Status.FAIL] and not names[Status.UNKNOWN]:
        return f"All {len(verdicts)} checks passed."
    others = [status for status in (Status.FAIL, Status.UNKNOWN) if names[status]]
    told = "; ".join(f"{', '.join(names[status])} {_WORDS[status]}" for status in others)
    return f"{len(names[Status.PASS])} of {len(verdicts)} checks passed; {told}."


def first_cause(history: History, failed: Sequence[Failure], zero: float) -> str:
    """The earliest attempt that a failed check names, and what was on at that moment; "" if none is named."""
    lines = [line for failure in failed if failure.status is Status.FAIL for line in (failure.why, *failure.lines)]
    named = named_calls(history, lines)
    attempts = [attempt for attempt in history.attempts if (attempt.call, attempt.path) in named and _odd(attempt)]
    if not attempts:
        return ""
    first = min(attempts, key=lambda attempt: attempt.ended or attempt.started)
    on = [window for window in history.faults if overlaps(window, first.started, first.ended)]
    during = " and ".join(f"{window.kind} on {_whom(window)}" for window in on) or "no fault"
    when = f"at {(first.ended or first.started) - zero:.2f} s"
    return f"First cause: {when} the call {first.call} {first.path} got {saw(first)}, during {during}."


def _odd(attempt: Attempt) -> bool:
    return attempt.status != 200 or attempt.ending != "complete"  # noqa: PLR2004
