"""No rollout is lost while a shard is healthy; with none, those before the fault and after recovery still count."""

from ..history import History, Rollout
from .base import Verdict, unknown, unless
from .evidence import could_serve


def check(history: History) -> Verdict:
    """Fail on rollouts that did not complete all of their turns, where a shard could have served them."""
    counted = history.rollouts if could_serve(history) else [one for one in history.rollouts if _clear(history, one)]
    if not counted:
        return unknown("no rollout ran while a shard could serve it")
    offences = [
        f"{one.rollout} ({one.phase}): {one.turns_done} of {one.turns} turns: {one.error or 'not ended'}"
        for one in counted
        if not one.completed
    ]
    return unless(offences, "lost rollouts", held=f"{len(counted)} rollouts completed")


def _clear(history: History, rollout: Rollout) -> bool:
    """Whether a rollout was over before the first fault, or began when the fleet had recovered."""
    first = min(window.began for window in history.faults)
    recovered = history.recovery.recovered if history.recovery else None
    over_before = rollout.ended is not None and rollout.ended < first
    return over_before or (recovered is not None and rollout.started >= recovered)
