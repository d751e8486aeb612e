"""The KV cache of one engine, in tokens: what requests hold, and what stays of the prefixes until it is evicted.

A rollout's context is one contiguous prefix: the first turn, which its group shares, and what is its own. Tokens that
no request holds stay cached; the least recently used go first, from the end of their prefix. Nothing is shared between
engines.
"""

from collections import OrderedDict
from typing import NamedTuple


class Prefix(NamedTuple):
    """Whose context it is. Groups have negative numbers, so that one table keeps both."""

    rollout: int
    group: int
    shared: int  # tokens of the first turn, which the group shares


class KvCache:
    """`used` tokens are held by requests, `cached` ones may be evicted; together they never exceed `capacity`."""

    __slots__ = ("_free", "_holders", "cached", "capacity", "hit_tokens", "used")

    def __init__(self, capacity: int, hit_tokens: int) -> None:
        self.capacity = capacity
        self.hit_tokens = hit_tokens
        self.used = 0
        self.cached = 0
        self._holders: dict[int, int] = {}  # of a group's first turn: requests
        self._free: OrderedDict[int, int] = OrderedDict()  # evictable tokens of a rollout or group, oldest first

    @property
    def usage(self) -> float:
        """`vllm:kv_cache_usage_perc`: the share that requests hold."""
        return self.used / self.capacity

    def hit(self, prefix: Prefix, context: int) -> int:
        """How many leading tokens of a context need no prefill; its last token is always computed."""
        shared = prefix.shared if prefix.group in self._holders else self._free.get(prefix.group, 0)
        own = self._free.get(prefix.rollout, 0) if shared >= prefix.shared else 0
        found = min(shared + own, context - 1)
        return found - found % self.hit_tokens

    def fits(self, prefix: Prefix, context: int) -> bool:
        """Whether a whole context can be held, which vLLM asks before it admits a request."""
        shared = prefix.shared if prefix.group in self._holders else 0
        return self.used + context - shared <= self.capacity

    def hold(self, prefix: Prefix, context: int) -> None:
        """Take a request's whole context into use."""
        self.cached -= self._free.pop(prefix.rollout, 0)
        holders = self._holders.get(prefix.group, 0)
        if not holders:
            self.cached -= self._free.pop(prefix.group, 0)
            self.used += prefix.shared
        self._holders[prefix.group] = holders + 1
        self.used += context - prefix.shared
        self._evict()

    def grow(self, tokens: int) -> None:
        """Decoded tokens are held too."""
        self.used += tokens
        self._evict()

    def release(self, prefix: Prefix, context: int, computed: int) -> None:
        """Give a request's context back; its first `computed` tokens stay cached until they are evicted."""
        self.used -= context - prefix.shared
        self.cached -= self._free.pop(prefix.rollout, 0)
        self._keep(prefix.rollout, computed - prefix.shared)
        holders = self._holders.pop(prefix.group) - 1
        if holders:
            self._holders[prefix.group] = holders
        else:
            self.used -= prefix.shared
            self._keep(prefix.group, prefix.shared if computed >= prefix.shared else 0)
        self._evict()

    def _keep(self, key: int, tokens: int) -> None:
        if tokens > 0:
            self._free[key] = tokens
            self.cached += tokens

    def _evict(self) -> None:
        over = self.used + self.cached - self.capacity
        while over > 0 and self._free:
            key, tokens = next(iter(self._free.items()))
            gone = min(tokens, over)
            if gone == tokens:
                del self._free[key]
            else:
                self._free[key] = tokens - gone
            self.cached -= gone
            over -= gone
