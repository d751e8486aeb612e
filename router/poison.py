"""Requests that break shards: remembered by digest, only after they failed, for a while, and only a few.

A shard that dies takes innocent requests with it, and a fault may hit every shard at once; neither makes a request
poison. What does: it broke `after` different shards, none of which has served since, while the fleet did serve others.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

REMEMBERED = 256
REMEMBER_S = 900.0


@dataclass(slots=True)
class Suspicion:
    """One failed request: which shards it broke, and when it was last seen to."""

    broke_at: dict[str, float] = field(default_factory=dict)  # shard url -> monotonic seconds
    last: float = 0.0


def digest(path: bytes, body: bytes) -> bytes:
    """The identity of a request across the client's retries."""
    hasher = hashlib.sha1(path, usedforsecurity=False)
    hasher.update(body)
    return hasher.digest()


def is_poison(broke_at: Mapping[str, float], proved_at: Mapping[str, float], after: int) -> bool:
    """Whether the shards in `broke_at` were broken by the request itself.

    `proved_at`: for each member of the fleet, the start of its latest successful request.
    """
    if len(broke_at) < after:
        return False
    recovered = any(proved_at.get(url, 0.0) >= at for url, at in broke_at.items())
    others_served = max(proved_at.values(), default=0.0) > min(broke_at.values())
    return others_served and not recovered


class PoisonMemory:
    """The failed requests of late. Empty nearly always, and free of cost while it is."""

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, Suspicion] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def broke(self, key: bytes, url: str, now: float) -> None:
        """Note that the request broke a shard."""
        entry = self._entries.setdefault(key, Suspicion())
        entry.broke_at[url] = entry.last = now
        self._entries.move_to_end(key)
        self.expire(now)

    def expire(self, now: float) -> None:
        """Forget what is too old, or too much."""
        while self._entries and (len(self._entries) > REMEMBERED or self._oldest() < now - REMEMBER_S):
            self._entries.popitem(last=False)

    def forgive(self, key: bytes) -> None:
        """The request was served: it is no poison."""
        self._entries.pop(key, None)

    def victims(self, key: bytes) -> Mapping[str, float]:
        """The shards that the request broke so far, and when."""
        entry = self._entries.get(key)
        return {} if entry is None else entry.broke_at

    def _oldest(self) -> float:
        return next(iter(self._entries.values())).last
