"""What may be wrong with a router under a fault and after it: how it is found, how grave it is, what would be right.

A flaw is a row. Its `right` is addressed to the router's author: it says what to do instead.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

from gymproof.validators import Contract

from ..checkers import body_intact
from ..checkers.base import Status
from ..checkers.evidence import by_call, contract_of, deliveries, show
from ..checkers.gym_safe_statuses import StatusFlaw, flaws
from ..clients.rollouts import UnusableAnswerError
from ..history import Attempt, Ending, History, Outcome, Served
from .faults import FaultCase
from .findings import Group, Word

FAIL_OVER = (
    "Try another backend within the same request, and send the next ones past the one that fails: no client needs to "
    "notice while a backend is well."
)
READMIT = "Go on asking a backend that was taken out, with a small generation, and take it back as soon as it answers."


@dataclass(frozen=True)
class Met:
    """What came of the requests that met a fault, in `load`. `whole` is all of the run."""

    case: FaultCase
    load: History
    whole: History

    @cached_property
    def contract(self) -> Contract:
        """Of the client."""
        return contract_of(self.whole)

    @cached_property
    def given(self) -> Mapping[Attempt, Sequence[Served]]:
        """What shards were given of each attempt."""
        return {attempt: served for attempt, _, served in deliveries(self.load)}

    @property
    def servable(self) -> bool:
        """Whether some shard could serve each request."""
        return self.case.group is not Group.ALL or self.case.harmless


Find = Callable[[Met], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Flaw:
    """`find` gives a line for each instance. `right` may name {endless}, {retry} and {give_up}: statuses."""

    word: Word
    right: str
    find: Find


def _line(met: Met, attempt: Attempt) -> str:
    """An attempt, and what became of it at the shards."""
    given = [f"shard {one.shard} {one.ending} {one.status or ''}".rstrip() for one in met.given.get(attempt, ())]
    return f"{show(attempt)}; {', '.join(given) or 'no shard saw it'}"


def _ended(*endings: Ending) -> Find:
    return lambda met: (_line(met, attempt) for attempt in met.load.attempts if attempt.ending in endings)


def _status(*named: StatusFlaw) -> Find:
    return lambda met: (_line(met, attempt) for flaw, attempt in flaws(met.load) if flaw in named)


def _late(met: Met) -> Iterator[str]:
    limit = met.whole.limits.deadline_s + met.whole.limits.grace_s
    for attempt in met.load.attempts:
        cut_off = attempt.ending is Ending.CLIENT_LEFT  # the client's clock runs a little ahead of the wire's
        if cut_off or attempt.ended is None or attempt.ended - attempt.started > limit:
            yield _line(met, attempt)


_redirected = _status(StatusFlaw.REDIRECT, StatusFlaw.UNKNOWN)


def _unusable(met: Met) -> Iterator[str]:
    yield from _status(StatusFlaw.UNTRACED)(met)
    for rollout in met.load.rollouts:
        if UnusableAnswerError.__name__ in rollout.error:
            yield f"{rollout.rollout}: {rollout.error}"


def _changed(met: Met) -> Iterable[str]:
    """Bodies that only a fault made the router change: what it does to every body is judged by itself.

    What a fault has spoiled on the way, and the router passed on, is no change of the router's.
    """
    usual = body_intact.check(phase(met.whole, "baseline"))
    passed_on = any(True for find in (_unusable, _redirected) for _ in find(met))
    return body_intact.check(met.load).evidence if usual.status is Status.PASS and not passed_on else ()


def _never_ended(met: Met) -> Iterator[str]:
    for call in met.load.calls:
        if call.outcome is Outcome.CANCELLED:
            yield f"{call.call} {call.path}: no end after {(call.ended or call.started) - call.started:.1f} s"


def _lost(met: Met) -> Iterator[str]:
    for rollout in met.load.rollouts if met.servable else ():
        if not rollout.completed:
            yield f"{rollout.rollout}: {rollout.turns_done} of {rollout.turns} turns: {rollout.error or 'not ended'}"


def _in_vain(met: Met) -> Iterator[str]:
    """Calls that used up all their tries, although they began when others had failed, and the router could know."""
    if met.servable:
        return
    failed = [call.ended for call in met.load.calls if call.outcome is not Outcome.RETURNED and call.ended is not None]
    known = min(failed, default=inf)
    for attempts in by_call(met.load.attempts).values():
        behaviour = met.contract.statuses.get(attempts[-1].status or 0)
        if behaviour is not None and behaviour.tries == len(attempts) > 1 and attempts[0].started >= known:
            yield f"{len(attempts)} tries, the last: {_line(met, attempts[-1])}"


def _no_batch(met: Met) -> Iterator[str]:
    """The last rollouts after the healing, where in no batch of them all completed."""
    recovery = met.whole.recovery
    batches: dict[str, bool] = {}
    after = [rollout for rollout in met.whole.rollouts if rollout.phase == "recovery"]
    for rollout in after:
        batch = rollout.rollout.rpartition("-")[0]
        batches[batch] = batches.get(batch, True) and rollout.completed
    if recovery is not None and recovery.recovered is None and not any(batches.values()):
        yield from (f"{one.rollout}: {one.error or 'not ended'}" for one in reversed(after) if not one.completed)


def _idle(met: Met) -> Iterator[str]:
    recovery = met.whole.recovery
    if recovery is not None and recovery.recovered is None:
        idle = sorted(set(range(met.whole.limits.shards)) - set(recovery.serving))
        yield f"shards that served no rollout: {idle or 'none'}; {recovery.detail}"


def phase(history: History, name: str) -> History:
    """The history with the attempts, calls and rollouts of one phase only. A call's tag begins with its phase."""

    def mine(records: Sequence[Any]) -> list[Any]:
        return [record for record in records if record.call.startswith(name)]

    return replace(
        history,
        attempts=mine(history.attempts),
        calls=mine(history.calls),
        served=mine(history.served),
        rollouts=[rollout for rollout in history.rollouts if rollout.phase == name],
        sink=None,
    )


# Gravest first: what a row finds, the rows below it may be a consequence of.
UNDER_FAULT: Mapping[str, Flaw] = {
    "late": Flaw(
        Word.UNSAFE,
        "Keep one deadline over all attempts of a request, from its arrival to the last byte of its answer, and answer "
        "{retry} when it is over.",
        _late,
    ),
    "without end": Flaw(
        Word.UNSAFE, "Every request has to end; the client waits as long as the router lets it.", _never_ended
    ),
    "retried without end": Flaw(
        Word.UNSAFE,
        "Never answer any of {endless}, nor pass one on: {retry} where another try may help, {give_up} where none "
        "will.",
        _status(StatusFlaw.ENDLESS),
    ),
    "unanswered": Flaw(
        Word.UNSAFE,
        "Answer every request. A backend that ends its connection is a failed attempt: try another one, else answer "
        "{retry}.",
        _ended(Ending.NO_ANSWER, Ending.REFUSED),
    ),
    "cut": Flaw(
        Word.UNSAFE,
        "Hold the head back until the whole answer is there: then one that is cut or stalls is a failed attempt, and "
        "another backend can be tried.",
        _ended(Ending.TRUNCATED),
    ),
    "garbled": Flaw(
        Word.UNSAFE,
        "Parse what a backend says and write one well-formed answer; what cannot be parsed is a failed attempt.",
        _ended(Ending.BAD_HTTP),
    ),
    "redirected": Flaw(
        Word.UNSAFE,
        "Pass no redirect on, nor a status that HTTP does not know: either is a failed attempt.",
        _redirected,
    ),
    "false success": Flaw(
        Word.UNSAFE,
        "Look into a success before passing it on: 200, whole JSON, choices, no error object and no finish_reason "
        "abort; anything else is a failed attempt.",
        _unusable,
    ),
    "own 400": Flaw(
        Word.UNSAFE,
        "Say no 400 of your own, which NeMo-Gym may score as a finished rollout: {retry} or {give_up}.",
        _status(StatusFlaw.SCORED),
    ),
    "changed": Flaw(Word.UNSAFE, "Pass bodies on byte for byte, on a second attempt too.", _changed),
    "lost": Flaw(Word.BOUNDED, FAIL_OVER, _lost),
    "in vain": Flaw(
        Word.BOUNDED,
        "Answer {give_up} when no backend is left: {retry} and its like have the client ask again and again.",
        _in_vain,
    ),
}
AFTERWARDS: Mapping[str, Flaw] = {
    "no rollouts": Flaw(Word.UNSAFE, READMIT, _no_batch),
    "idle": Flaw(Word.BOUNDED, READMIT, _idle),
}
