"""Who chooses the engine of a turn: what the simulation asks of a router, and the document's own baseline."""

from random import Random
from typing import Protocol

from gymproof.router.policies import POLICIES

from .rollouts import Rollout


class Router(Protocol):
    """A router in virtual time. Shards are numbers; `now` is in seconds."""

    def route(self, rollout: Rollout, now: float) -> int | None:
        """The shard of a rollout's next turn, which is sent to it now; None while nobody serves."""

    def ended(self, rollout: Rollout, shard: int, answer: int | None, now: float) -> None:
        """A turn is over: the answer's tokens, or None where its shard died."""

    def scraped(self, shard: int, usage: float, waiting: int, now: float) -> None:
        """A shard's `/metrics`: the share of its KV cache in use, and its waiting requests."""

    def serving(self, shard: int, *, up: bool) -> None:
        """A shard went down, or is back, empty."""

    def over(self, rollout: Rollout) -> None:
        """A rollout has had its last turn; only a client can know."""


class PinnedReplicas:
    """The document's baseline: the client pins a rollout to the replica with the fewest rollouts; here one engine each."""

    def __init__(self, shards: int, seed: int) -> None:
        self._draws = Random(seed)
        self._up = dict.fromkeys(range(shards), True)
        self._rollouts = [0] * shards
        self._home: dict[int, int] = {}

    def route(self, rollout: Rollout, now: float) -> int | None:
        """The home; a new one where there is none, or it is down."""
        del now
        home = self._home.get(rollout.id)
        if home is None or not self._up[home]:
            self.over(rollout)
            home = self._pin(rollout.id)
        return home

    def _pin(self, rollout: int) -> int | None:
        serving = [shard for shard, up in self._up.items() if up]
        if not serving:
            return None
        home = min(serving, key=lambda shard: (self._rollouts[shard], self._draws.random()))
        self._rollouts[home] += 1
        self._home[rollout] = home
        return home

    def ended(self, rollout: Rollout, shard: int, answer: int | None, now: float) -> None:
        """Nothing to learn."""

    def scraped(self, shard: int, usage: float, waiting: int, now: float) -> None:
        """Nothing to learn."""

    def serving(self, shard: int, *, up: bool) -> None:
        """Remember."""
        self._up[shard] = up

    def over(self, rollout: Rollout) -> None:
        """Free its place."""
        if (home := self._home.pop(rollout.id, None)) is not None:
            self._rollouts[home] -= 1


class Shard:
    """What a policy sees of one."""

    __slots__ = ("in_flight", "url")

    def __init__(self, number: int) -> None:
        self.url = f"http://shard{number}:8000/v1"
        self.in_flight = 0


class Stateless:
    """One of the router's own policies that needs no books."""

    def __init__(self, shards: int, policy: str) -> None:
        self._policy = POLICIES[policy]
        self._shards = [Shard(number) for number in range(shards)]
        self._numbers = {shard: number for number, shard in enumerate(self._shards)}
        self._serving = list(self._shards)
        self._turn = 0

    def route(self, rollout: Rollout, now: float) -> int | None:
        if not self._serving:
            return None
        shard = self._policy(self._serving, self._turn)
        self._turn += 1
        shard.in_flight += 1
        return self._numbers[shard]

    def ended(self, rollout: Rollout, shard: int, answer: int | None, now: float) -> None:
        self._shards[shard].in_flight -= 1

    def scraped(self, shard: int, usage: float, waiting: int, now: float) -> None:
        pass

    def serving(self, shard: int, *, up: bool) -> None:
        changed = self._shards[shard]
        self._serving = [s for s in self._shards if (s in self._serving and s is not changed) or (up and s is changed)]

    def over(self, rollout: Rollout) -> None:
        pass


ROUTERS = {"pinned_replicas": 0, "round_robin": 0, "least_outstanding": 0}


def make_router(policy, experiment, seed):
    if policy == "pinned_replicas":
        return PinnedReplicas(experiment.engines, seed)
    return Stateless(experiment.engines, policy)
