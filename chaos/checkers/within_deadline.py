"""No attempt lasts longer than the deadline that the router was given, however many shards it tries."""

from ..history import History
from .base import Verdict, unless
from .evidence import show


def check(history: History) -> Verdict:
    """Fail on attempts that took longer than `deadline_s + grace_s`, or that never ended."""
    limit = history.limits.deadline_s + history.limits.grace_s
    offences = [
        show(attempt)
        for attempt in history.attempts
        if attempt.ended is None or attempt.ended - attempt.started > limit
    ]
    return unless(
        offences, f"attempts over {limit:g} s", held=f"{len(history.attempts)} attempts ended within {limit:g} s"
    )
