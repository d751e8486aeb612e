"""One request reaches few shards, so that a poison request cannot take the fleet, and each of them once.

A pair of legs is one delivery: a prefill leg counts where nothing was asked of a decode server after it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from ..faults.base import Layer
from ..history import Attempt, History, Served
from .base import Verdict, unless
from .evidence import deliveries, faults_on


def check(history: History) -> Verdict:
    """Fail on attempts that more than `max_attempts` shards worked on, or one shard twice without a lost connection."""
    offences: list[str] = []
    for attempt, number, given in deliveries(history):
        during = [
            one
            for one in given
            if (attempt.ended is None or one.started <= attempt.ended) and not (number and _may_be_late(history, one))
        ]
        offences += _excess(history, attempt, _pairs_as_one(during))
    return unless(offences, "attempts delivered too often", held="no attempt was delivered more often than allowed")


def _pairs_as_one(given: Sequence[Served]) -> list[Served]:
    legs = [*(one.leg for one in given), "prefill"]  # a last prefill leg counts as if another followed
    return [one for one, after in zip(given, legs[1:], strict=True) if one.leg != "prefill" or after == "prefill"]


def _excess(history: History, attempt: Attempt, given: Sequence[Served]) -> Iterator[str]:
    shards = Counter(one.shard for one in given)
    what = f"{attempt.call} {attempt.path}"
    if len(shards) > history.limits.max_attempts:
        yield f"{what}: worked on by shards {sorted(shards)}, {history.limits.max_attempts} are allowed"
    for shard, times in shards.items():
        # A pooled connection that a fault broke before any answer byte may be tried once more on a fresh one.
        stale = bool(faults_on(history, shard, attempt.started, attempt.ended))
        if times > 1 + stale:
            yield f"{what}: shard {shard} was given the same request {times} times"


def _may_be_late(history: History, served: Served) -> bool:
    """Whether a delivery may be an earlier attempt's: a healed process or link hands over what it was sent before."""
    return any(
        window.layer in (Layer.PROCESS, Layer.TOXIC)
        for window in faults_on(history, served.shard, served.started, served.started)
    )
