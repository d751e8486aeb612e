"""What nobody waits for any more is cancelled: a shard does not work on for a client that was answered or has left."""

from ..faults.base import Layer
from ..history import Attempt, FaultWindow, History, Served
from .base import Verdict, unless
from .evidence import deliveries, faults_on, show

# Behind these the end of a connection does not reach the shard.
_SILENT_LINKS = frozenset({"black_hole", "stall"})


def check(history: History) -> Verdict:
    """Fail on shards' work that outlived its attempt by more than `cancel_within_s`, where the shard could be told."""
    offences = [
        f"shard {served.shard} worked on{_how_long(attempt, served)}: {show(attempt)}"
        for attempt, _, given in deliveries(history)
        for served in given
        if _outlived(history, attempt, served) and not _deaf(history, attempt, served)
    ]
    return unless(offences, "abandoned generations", held="no shard worked on for nobody")


def _outlived(history: History, attempt: Attempt, served: Served) -> bool:
    if attempt.ended is None:
        return False
    # A request may reach its shard when its client has gone already: then its time runs from there.
    allowed = max(attempt.ended, served.started) + history.limits.cancel_within_s
    return served.ended is None or served.ended > allowed


def _deaf(history: History, attempt: Attempt, served: Served) -> bool:
    """Whether a fault kept the shard from hearing of the cancellation, or from recording it."""
    until = (attempt.ended or served.started) + history.limits.cancel_within_s
    return any(_deafens(window) for window in faults_on(history, served.shard, served.started, until))


def _deafens(window: FaultWindow) -> bool:
    if window.layer == Layer.PROCESS:
        # The API server in front of a stopped engine still sees its connections close.
        return not (window.kind == "stop" and window.parameters.get("process") == "engine")
    return window.kind in _SILENT_LINKS


def _how_long(attempt: Attempt, served: Served) -> str:
    if served.ended is None or attempt.ended is None:
        return " to the end of the run"
    return f" for {served.ended - attempt.ended:.2f} s"
