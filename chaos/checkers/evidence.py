"""Questions that more than one checker asks of a history.

Plain functions over records, without a verdict. An attempt, a call and a delivery belong together by (call, path).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeVar

from gymproof.validators import Contract, load_contract

from ..choices import contract_client
from ..faults.base import Layer
from ..history import Attempt, Call, Ending, FaultWindow, History, Served

_EDGE_S = 0.25  # a window's edges are stamped by another task than the one that felt it
_LAG_S = 0.25  # a shard may log a request before the wiretap stamps it; Gym waits 0.5 s between two attempts
_TaggedRecord = TypeVar("_TaggedRecord", Attempt, Call, Served)


def by_call(records: Iterable[_TaggedRecord]) -> dict[tuple[str, str], list[_TaggedRecord]]:
    """Records by (call, path), in order of their start; what carries no tag belongs to no call."""
    groups: defaultdict[tuple[str, str], list[_TaggedRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.started):
        if record.call:
            groups[record.call, record.path].append(record)
    return dict(groups)


def deliveries(history: History) -> Iterator[tuple[Attempt, int, list[Served]]]:
    """Each tagged attempt, its number within its call (from 0), and what shards were given while it was the newest."""
    served = by_call(history.served)
    for key, attempts in by_call(history.attempts).items():
        starts = [attempt.started - _LAG_S for attempt in attempts]
        spans = zip(starts, [*starts[1:], math.inf], strict=True)
        for number, (attempt, (start, end)) in enumerate(zip(attempts, spans, strict=True)):
            yield attempt, number, [one for one in served.get(key, ()) if start <= one.started < end]


def contract_of(history: History) -> Contract:
    """The contract of the client that made the run."""
    limits = history.limits
    return load_contract(contract_client(limits.client), limits.client_version or None)


def faultless(history: History) -> frozenset[int]:
    """The shards that no fault of the run was on."""
    struck = {shard for window in history.faults for shard in window.shards}
    return frozenset(range(history.limits.shards)) - struck


def could_serve(history: History) -> frozenset[int]:
    """The shards that no fault was on and that can serve a request alone."""
    return faultless(history) - frozenset(range(history.limits.prefill))


def overlaps(window: FaultWindow, started: float, ended: float | None) -> bool:
    """Whether a fault was on at some time between `started` and `ended` (None: still open)."""
    healed = math.inf if window.healed is None else window.healed
    return started <= healed + _EDGE_S and (ended is None or ended >= window.began - _EDGE_S)


def faults_on(history: History, shard: int, started: float, ended: float | None) -> list[FaultWindow]:
    """The faults that were on one shard at some time between `started` and `ended`."""
    return [window for window in history.faults if shard in window.shards and overlaps(window, started, ended)]


def router_was_down(history: History, attempt: Attempt) -> bool:
    """Whether an attempt without an answer is the doing of a fault on the router itself."""
    return attempt.ending in (Ending.REFUSED, Ending.NO_ANSWER) and any(
        window.layer == Layer.ROUTER and overlaps(window, attempt.started, attempt.ended) for window in history.faults
    )


def show(attempt: Attempt) -> str:
    """One attempt in one line."""
    call = attempt.call or "(no call)"
    took = "not ended" if attempt.ended is None else f"after {attempt.ended - attempt.started:.2f} s"
    status = "" if attempt.status is None else f" {attempt.status}"
    reason = " ".join(part for part in (attempt.reason, attempt.detail) if part)
    return f"{call} {attempt.path}: {attempt.ending}{status} {took}" + (f" ({reason})" if reason else "")
