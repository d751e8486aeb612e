"""Who chooses the engine of a turn: the router's own policies, driven in virtual time, and the document's baseline."""

from random import Random
from typing import Protocol

from gymproof.router.policies import POLICIES, Choice, Policy, PolicySettings, Sample, Turn

from .pinned import PinnedReplicas
from .rollouts import Rollout

PINNED = "pinned_replicas"
ROUTERS = (PINNED, *POLICIES)


class Router(Protocol):
    """What a simulation asks. Shards are numbers; `now` is in seconds."""

    def route(self, rollout: Rollout, now: float) -> int | None:
        """The shard of a rollout's next turn, which is sent to it now; None while nobody serves."""

    def ended(self, rollout: Rollout, shard: int, answer: int | None, now: float) -> None:
        """A turn is over: the answer's tokens, or None where its shard died."""

    def scraped(self, shard: int, sample: Sample, now: float) -> None:
        """A shard's `/metrics`."""

    def serving(self, shard: int, now: float, *, up: bool) -> None:
        """A shard went down, or is back, empty."""

    def over(self, rollout: Rollout) -> None:
        """A rollout has had its last turn; only a client can know."""


class Shard:
    """What a policy sees of an engine."""

    __slots__ = ("in_flight", "number", "url")

    def __init__(self, number: int) -> None:
        self.number = number
        self.url = f"http://shard-{number}:8000/v1"
        self.in_flight = 0


class RoutedBy:
    """One of gym-router's policies, given what the router gives it."""

    def __init__(self, policy: Policy[Shard], shards: int, seed: int) -> None:
        self._policy = policy
        self._seed = seed
        self._shards = [Shard(number) for number in range(shards)]
        self._up = set(self._shards)
        self._open: dict[int, Choice[Shard]] = {}
        policy.set_serving(self._shards, 0.0)

    def route(self, rollout: Rollout, now: float) -> int | None:
        """Choose, and count."""
        # By the seed too: hashing them must not put the same rollouts together in every run.
        keys, group = (b"rollout %d %d" % (self._seed, rollout.id),), b"group %d" % rollout.prefix.group
        choice = self._policy.choose(Turn(keys, group, rollout.context), now)
        if choice is None:
            return None
        choice.shard.in_flight += 1
        self._open[rollout.id] = choice
        return choice.shard.number

    def ended(self, rollout: Rollout, shard: int, answer: int | None, now: float) -> None:
        """Count, and say how long the context has become."""
        self._shards[shard].in_flight -= 1
        tokens = None if answer is None else rollout.context + answer
        self._policy.ended(self._open.pop(rollout.id), now, tokens=tokens)

    def scraped(self, shard: int, sample: Sample, now: float) -> None:
        """Pass it on."""
        self._policy.scraped(self._shards[shard], sample, now)

    def serving(self, shard: int, now: float, *, up: bool) -> None:
        """Tell who serves from now on."""
        (self._up.add if up else self._up.discard)(self._shards[shard])
        self._policy.set_serving([one for one in self._shards if one in self._up], now)

    def over(self, rollout: Rollout) -> None:
        """Nobody tells a router."""


def make_router(name: str, shards: int, seed: int) -> Router:
    """A fresh router of this name, one of ROUTERS."""
    if name == PINNED:
        return PinnedReplicas(shards, seed)
    return RoutedBy(POLICIES[name](PolicySettings(), Random(seed)), shards, seed)
