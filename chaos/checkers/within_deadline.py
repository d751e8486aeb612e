"""No attempt lasts longer than the deadline that the router was given, or than the scenario allows, if that is less."""

from ..history import History
from .base import Verdict, unless
from .evidence import show


def check(history: History) -> Verdict:
    """Fail on attempts that never ended, or took longer than `answer_within_s` (else the deadline) and the grace."""
    limits = history.limits
    limit = (limits.answer_within_s or limits.deadline_s) + limits.grace_s
    offences = [
        show(attempt)
        for attempt in history.attempts
        if attempt.ended is None or attempt.ended - attempt.started > limit
    ]
    return unless(
        offences, f"attempts over {limit:g} s", held=f"{len(history.attempts)} attempts ended within {limit:g} s"
    )
