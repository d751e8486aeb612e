"""Hand-made histories, one line a record: for the tests of checkers, these ones and your own.

Every helper has defaults that describe a run in which nothing is wrong. Times are seconds from 0.
"""

from typing import Any

from ..faults.base import Layer
from ..history import (
    Attempt,
    Call,
    Delivery,
    Ending,
    FaultWindow,
    History,
    Limits,
    Outcome,
    Record,
    Recovery,
    Rollout,
    Served,
    ShardReport,
)

CHAT = "/v1/chat/completions"
_BODIES = {"request_sha256": "asked", "response_sha256": "answered"}  # the same on both sides


def history(*records: Record, shards: int = 3, deadline_s: float = 2.0, **limits: Any) -> History:
    """A history of these records."""
    made = History(Limits(shards=shards, deadline_s=deadline_s, **limits))
    for record in records:
        made.add(record)
    return made


def attempt(call: str = "r0.t0", at: float = 0.0, took: float | None = 0.1, **fields: Any) -> Attempt:
    """An attempt from `at`, `took` seconds long (None: it never ended), answered with a whole 200."""
    known: dict[str, Any] = {"path": CHAT, "ending": Ending.COMPLETE, "status": 200} | _BODIES | fields
    return Attempt(call=call, started=at, ended=None if took is None else at + took, **known)


def served(call: str = "r0.t0", shard: int = 0, at: float = 0.0, took: float | None = 0.05, **fields: Any) -> Served:
    """A shard's work from `at`, `took` seconds long, answered with 200."""
    known: dict[str, Any] = {"path": CHAT, "ending": Delivery.ANSWERED, "status": 200} | _BODIES | fields
    return Served(call=call, shard=shard, started=at, ended=None if took is None else at + took, **known)


def call(name: str = "r0.t0", outcome: Outcome = Outcome.RETURNED, at: float = 0.0, took: float = 0.1) -> Call:
    """A client's call."""
    return Call(name, CHAT, name.partition(".")[0], at, at + took, outcome)


def rollout(name: str = "r0", phase: str = "fault", at: float = 0.0, took: float = 0.2, done: int = 2) -> Rollout:
    """A rollout of two turns, `done` of which returned a usable answer."""
    error = "" if done == 2 else f"turn {done}: lost"  # noqa: PLR2004 - two turns, as it says
    return Rollout(name, phase, at, at + took, 2, done, error)


def fault(*shards: int, kind: str = "kill", layer: Layer = Layer.PROCESS, **fields: Any) -> FaultWindow:
    """A fault on these shards from 1 s to 2 s, which was seen to act."""
    known: dict[str, Any] = {"began": 1.0, "healed": 2.0, "acted": True} | fields
    return FaultWindow(kind, layer, shards, **known)


def shard_report(shard: int, *, same_process: bool = True, healthy: bool = True) -> ShardReport:
    """A shard as it was found after the run."""
    return ShardReport(shard, same_process, healthy)


def recovery(*serving: int, healed: float = 2.0, recovered: float | None = 3.0) -> Recovery:
    """A recovery in which these shards served again."""
    return Recovery(healed, recovered, serving, "batch 1")
