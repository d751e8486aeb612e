"""The document's baseline: the client pins a rollout to the replica with the fewest rollouts."""

from random import Random

from gymproof.router.policies import Sample

from .rollouts import Rollout


class PinnedReplicas:
    """A rollout stays where it was pinned, be that full; it gets another if that is down. A replica is an engine."""

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

    def scraped(self, shard: int, sample: Sample, now: float) -> None:
        """Nothing to learn."""

    def serving(self, shard: int, now: float, *, up: bool) -> None:
        """Remember."""
        del now
        self._up[shard] = up

    def over(self, rollout: Rollout) -> None:
        """Free its place."""
        if (home := self._home.pop(rollout.id, None)) is not None:
            self._rollouts[home] -= 1
