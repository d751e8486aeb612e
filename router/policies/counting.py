"""Policies that look at nothing but what is in flight: for requests without history, and for comparison."""

from collections.abc import Sequence
from random import Random

from .base import PolicySettings, S, Stateless, Turn, some_of


class _InTurn(Stateless[S]):
    """Counts its choices, so that equal shards share the load."""

    def __init__(self, _settings: PolicySettings, _random: Random) -> None:
        super().__init__()
        self._turn = 0

    def _next(self) -> int:
        self._turn += 1
        return self._turn


class RoundRobin(_InTurn[S]):
    """Each shard in turn."""

    def _pick(self, serving: Sequence[S], turn: Turn) -> S:
        del turn
        return serving[self._next() % len(serving)]


class LeastOutstanding(_InTurn[S]):
    """The shard with the fewest requests in flight, of a block of 64 where there are more; equal ones take turns."""

    def _pick(self, serving: Sequence[S], turn: Turn) -> S:
        del turn
        return min(some_of(serving, self._next()), key=lambda shard: shard.in_flight)


class PowerOfTwo(Stateless[S]):
    """The less loaded of two drawn at random."""

    def __init__(self, _settings: PolicySettings, random: Random) -> None:
        super().__init__()
        self._random = random.random

    def _pick(self, serving: Sequence[S], turn: Turn) -> S:
        del turn
        one, other = (serving[int(self._random() * len(serving))] for _ in range(2))
        return other if other.in_flight < one.in_flight else one
