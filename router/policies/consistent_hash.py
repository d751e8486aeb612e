"""Rendezvous hashing: a session's shard is the one whose name and key hash highest. Blind to load, so for comparison.

A lost shard's sessions spread over the others, and return when it does.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from random import Random

from .base import PolicySettings, S, Stateless, Turn

MASK = (1 << 64) - 1
REMEMBERED = 65_536  # keys whose shard is not looked for again until others serve
MULTIPLIER = 0x9E3779B97F4A7C15  # odd, so that multiplying loses nothing


def hash64(name: bytes) -> int:
    """The same in every process, unlike `hash`."""
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big")


class ConsistentHash(Stateless[S]):
    """By the key that a session keeps for life; without one, any shard."""

    reads_turns = True

    def __init__(self, _settings: PolicySettings, random: Random) -> None:
        super().__init__()
        self._random = random.random
        self._hashes: dict[S, int] = {}
        self._winner = lru_cache(REMEMBERED)(self._highest)

    def set_serving(self, serving: Sequence[S], now: float, resting: Sequence[S] = ()) -> None:
        """Remember who serves, and what their names hash to."""
        super().set_serving(serving, now, resting)
        if self._hashes.keys() != set(serving):
            self._hashes = {shard: self._hashes.get(shard) or hash64(shard.url.encode()) for shard in serving}
            self._winner.cache_clear()

    def _pick(self, serving: Sequence[S], turn: Turn) -> S:
        if not turn.keys:
            return serving[int(self._random() * len(serving))]
        key = turn.keys[-1]
        return self._winner(key) if serving is self._serving else self._highest(key, serving)

    def _highest(self, key: bytes, among: Sequence[S] = ()) -> S:
        number, hashes = hash64(key), self._hashes
        return max(among or hashes, key=lambda shard: _mixed(number ^ hashes[shard]))


def _mixed(number: int) -> int:
    number = (number * MULTIPLIER) & MASK
    return ((number ^ (number >> 32)) * MULTIPLIER) & MASK
