"""Who serves next: plain functions over shards that are already known to be available.

A policy sees only what may serve, so a dead shard can never influence a choice. `turn` counts the choices made so
far; it breaks ties, so that equal shards share the load.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar


class Loaded(Protocol):
    """What a policy may know of a shard."""

    @property
    def in_flight(self) -> int:
        """Requests that the shard is working on for this router."""


S = TypeVar("S", bound=Loaded)


def least_outstanding(shards: Sequence[S], turn: int) -> S:
    """The shard with the fewest requests in flight."""
    count = len(shards)
    best = shards[turn % count]
    for offset in range(1, count):
        shard = shards[(turn + offset) % count]
        if shard.in_flight < best.in_flight:
            best = shard
    return best


def round_robin(shards: Sequence[S], turn: int) -> S:
    """Each shard in turn."""
    return shards[turn % len(shards)]


class Policy(Protocol):
    """Chooses one of the shards it is given, which are never none."""

    def __call__(self, shards: Sequence[S], turn: int, /) -> S:
        """Choose."""


POLICIES: Mapping[str, Policy] = {
    "least_outstanding": least_outstanding,
    "round_robin": round_robin,
}
