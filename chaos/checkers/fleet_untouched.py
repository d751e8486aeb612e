"""Shards that had no fault feel nothing of it: same process, healthy, at work, and their work is not thrown away."""

from collections.abc import Iterator
from http import HTTPStatus

from ..history import Delivery, Ending, History
from .base import Verdict, passed, unknown, unless
from .evidence import deliveries, faultless, overlaps, router_was_down, show

_EDGE_S = 0.25  # a router may drop its upstream a moment before its answer is on the wire


def check(history: History) -> Verdict:
    """Look at the shards without a fault, after the run and in what they served during it."""
    healthy = faultless(history)
    if not healthy:
        return passed("every shard had a fault")
    if not healthy <= {report.shard for report in history.shards}:
        return unknown("not every shard without a fault was looked at after the run")
    offences = [*_disturbed(history), *_idle(history), *_thrown_away(history)]
    return unless(offences, "signs of a disturbed shard", held=f"shards {sorted(healthy)} worked on undisturbed")


def _disturbed(history: History) -> Iterator[str]:
    for report in history.shards:
        if report.shard in faultless(history) and not (report.same_process and report.healthy):
            state = "answers" if report.healthy else "does not answer"
            same = "the same process" if report.same_process else "another process than before"
            yield f"shard {report.shard} {state}, {same} {report.detail}".rstrip()


def _idle(history: History) -> Iterator[str]:
    """Faults on shards during which calls failed, and no shard without a fault got any."""
    healthy = faultless(history)
    for window in history.faults:
        failed = any(
            attempt.call and attempt.status != HTTPStatus.OK and overlaps(window, attempt.started, attempt.ended)
            for attempt in history.attempts
        )
        served = any(
            one.shard in healthy and one.call and overlaps(window, one.started, one.ended) for one in history.served
        )
        if window.shards and failed and not served:
            yield f"nothing was served by shards {sorted(healthy)} during {window.kind}"


def _thrown_away(history: History) -> Iterator[str]:
    """Work of such shards that was cancelled although its client still waited."""
    healthy = faultless(history)
    for attempt, _, given in deliveries(history):
        for served in given:
            cancelled = served.shard in healthy and served.ending is Delivery.CANCELLED and served.ended is not None
            if not cancelled or attempt.ending is Ending.CLIENT_LEFT or router_was_down(history, attempt):
                continue
            if attempt.ended is None or (served.ended or 0.0) < attempt.ended - _EDGE_S:
                yield f"shard {served.shard} was cancelled while its client waited: {show(attempt)}"
