"""The judges of a finished run: one invariant a file, and nothing but the history to go by."""

from collections.abc import Iterable

from ..history import History
from . import (
    answered_exactly_once,
    body_intact,
    deliveries_bounded,
    fleet_untouched,
    gym_safe_statuses,
    no_rollout_lost,
    no_unbounded_retry,
    pairs_whole,
    recovers,
    upstream_cancelled,
    within_deadline,
)
from .base import Checker, Status, Verdict, unknown

CHECKERS: dict[str, Checker] = {
    "answered_exactly_once": answered_exactly_once.check,
    "gym_safe_statuses": gym_safe_statuses.check,
    "within_deadline": within_deadline.check,
    "no_rollout_lost": no_rollout_lost.check,
    "body_intact": body_intact.check,
    "no_unbounded_retry": no_unbounded_retry.check,
    "upstream_cancelled": upstream_cancelled.check,
    "deliveries_bounded": deliveries_bounded.check,
    "pairs_whole": pairs_whole.check,
    "recovers": recovers.check,
    "fleet_untouched": fleet_untouched.check,
}


def judge(history: History, names: Iterable[str] | None = None) -> dict[str, Verdict]:
    """Judge a history by the named checkers (None: all); ValueError for a name that `CHECKERS` lacks.

    A checker that crashes gives UNKNOWN. In a run that proves nothing, because a fault did not act or nothing was
    recorded, what would pass is UNKNOWN too; a failure stays one.
    """
    chosen = list(CHECKERS if names is None else names)
    missing = sorted(set(chosen) - CHECKERS.keys())
    if missing:
        raise ValueError(f"unknown check {missing[0]!r}: known are {', '.join(CHECKERS)}")
    doubt = _doubt(history)
    return {name: _doubted(_run(CHECKERS[name], history), doubt) for name in chosen}


def _run(checker: Checker, history: History) -> Verdict:
    try:
        return checker(history)
    except Exception as error:  # noqa: BLE001 - whatever a checker dies of, the run has not passed it
        return unknown(f"the checker crashed: {type(error).__name__}: {error}")


def _doubt(history: History) -> str:
    """Why nothing can be concluded from a history's silence, "" if nothing speaks against it."""
    if not history.attempts:
        return "no attempt was recorded"
    if not history.rollouts:
        return "no rollout was recorded"
    inert = [window for window in history.faults if not window.acted]
    if inert:
        return f"the fault {inert[0].kind} was not seen to act: {inert[0].detail or 'no reason was recorded'}"
    return ""


def _doubted(verdict: Verdict, doubt: str) -> Verdict:
    return Verdict(Status.UNKNOWN, doubt, (verdict.why,)) if doubt and verdict.status is Status.PASS else verdict
