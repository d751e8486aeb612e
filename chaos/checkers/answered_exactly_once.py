"""Every attempt gets exactly one whole answer: nothing cut, nothing missing, nothing twice."""

from ..history import Ending, History
from .base import Verdict, unless
from .evidence import router_was_down, show

# A client that has left is owed nothing.
_FINE = frozenset({Ending.COMPLETE, Ending.CLIENT_LEFT})


def check(history: History) -> Verdict:
    """Fail on attempts that were cut, dropped, refused, garbled or left open, except while the router was down."""
    offences = [
        show(attempt)
        for attempt in history.attempts
        if attempt.ending not in _FINE and not router_was_down(history, attempt)
    ]
    return unless(
        offences, "attempts without exactly one whole answer", held=f"{len(history.attempts)} attempts, one answer each"
    )
