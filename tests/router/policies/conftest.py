"""A policy in virtual time: the code of the router, without a socket."""

from dataclasses import dataclass
from random import Random

import pytest

from gymproof.router.policies import POLICIES, PolicySettings, Sample, Turn

CAPACITY = 1_000_000


@dataclass(eq=False)
class Shard:
    url: str
    in_flight: int = 0


class Desk:
    """A policy over some shards, and what is in flight on them."""

    def __init__(self, count, policy="session", seed=1, *, backwards=False, **settings):
        self.shards = [Shard(f"http://h{number}") for number in range(count)]
        self.policy = POLICIES[policy](PolicySettings(**settings), Random(seed))
        self.now = 0.0
        self.policy.set_serving(self.shards[::-1] if backwards else self.shards, self.now)

    def send(self, key=b"", group=b"", tokens=1000, tried=()):
        turn = Turn((key,) if key else (), group, tokens)
        choice = self.policy.choose(turn, self.now, tried)
        choice.shard.in_flight += 1
        return choice

    def end(self, choice, tokens=1000):
        choice.shard.in_flight -= 1
        self.policy.ended(choice, self.now, tokens)

    def turn(self, key=b"", group=b"", tokens=1000):
        choice = self.send(key, group, tokens)
        self.end(choice, tokens)
        return choice.shard

    def serving(self, *shards, resting=()):
        self.policy.set_serving(shards, self.now, resting)

    def scrape(self, usages, waiting=0):
        for shard, usage in zip(self.shards, usages, strict=True):
            self.policy.scraped(shard, Sample(usage, waiting, CAPACITY), self.now)

    def full_home(self, others, home=0.95):
        """A session at home on a shard this full, the others being so full."""
        shard = self.turn(b"s")
        self.scrape([home if other is shard else others for other in self.shards])
        return shard


@pytest.fixture(scope="session")
def new_desk():
    """Makes one."""
    return Desk
