"""Rendezvous hashing: of all shards, the one with the highest score for a key. Blind to load, so for comparison.

A lost shard's sessions spread over the others, and return when it does. A score is how closely one of the shard's
points on a ring of hashes follows one of the key's probes, so the highest is found by bisection and not by computing
all (Appleton and O'Reilly, Multi-probe consistent hashing, 2015).
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from hashlib import blake2b, shake_128
from random import Random
from struct import Struct

from .base import Choice, PolicySettings, S, Stateless, Turn

RING_BITS, CELL_BITS = 64, 50
RING = 1 << RING_BITS
CELLS = RING >> CELL_BITS  # of the ring: bisecting one of them looks at fewer points
# Of each shard, and probes of each key. With 16, the shards' shares of the keys have a standard deviation of 4 %.
POINTS = Struct(">16Q")


def hash64(name: bytes) -> int:
    """The same in every process, unlike `hash`."""
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big")


class ConsistentHash(Stateless[S]):
    """By the key that a session keeps for life; without one, any shard."""

    reads_turns = True

    def __init__(self, _settings: PolicySettings, random: Random) -> None:
        super().__init__()
        self._random = random.random
        self._points: dict[S, tuple[int, ...]] = {}
        self._owners: dict[int, S] = {}  # of the points
        self._ring: list[int] = []  # all points, in order
        self._starts: list[int] = []  # of the cells in it, and its end

    def set_serving(self, serving: Sequence[S], now: float, resting: Sequence[S] = ()) -> None:
        """Put the points of who serves on the ring."""
        super().set_serving(serving, now, resting)
        known, kept = self._points.keys(), dict.fromkeys(serving)
        if known == kept.keys():
            return
        self._points = {shard: self._points.get(shard) or points(shard.url.encode()) for shard in serving}
        self._owners = {point: shard for shard, its in self._points.items() for point in its}
        self._ring = sorted(self._owners)
        self._starts = [bisect_left(self._ring, cell << CELL_BITS) for cell in range(CELLS + 1)]

    def choose(self, turn: Turn, now: float, tried: Collection[S] = ()) -> Choice[S] | None:
        """The shard with the highest score that is not `tried`."""
        if turn.keys and any(shard not in tried for shard in self._serving):
            return Choice(self._highest(turn.keys[-1], tried))
        return super().choose(turn, now, tried)

    def _pick(self, serving: Sequence[S], turn: Turn) -> S:
        del turn
        return serving[int(self._random() * len(serving))]

    def _highest(self, key: bytes, tried: Collection[S]) -> S:
        ring, starts, owners = self._ring, self._starts, self._owners
        closest, winner = RING, ring[0]
        for probe in points(key):
            cell = probe >> CELL_BITS
            place = bisect_left(ring, probe, starts[cell], starts[cell + 1])
            point = ring[place % len(ring)]
            while tried and owners[point] in tried:
                place += 1
                point = ring[place % len(ring)]
            if (distance := (point - probe) % RING) < closest:
                closest, winner = distance, point
        return owners[winner]


def points(name: bytes) -> tuple[int, ...]:
    """Where a name's points, or probes, are on the ring; the same in every process."""
    return POINTS.unpack(shake_128(name).digest(POINTS.size))
