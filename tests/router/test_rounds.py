"""Rounds: every shard has its turn, and not all of them at once."""

import asyncio
from dataclasses import dataclass

from gymproof.router.rounds import TURNS, Rounds


@dataclass(frozen=True)
class Named:
    url: str


SHARDS = [Named(f"http://{number}") for number in range(2 * TURNS)]


def test_the_shards_of_a_round_are_spread_over_its_interval(kit):
    async def story(interval_s, count):
        checked = []

        async def check(shard):
            checked.append(shard.url)

        rounds = asyncio.create_task(Rounds(lambda: SHARDS, interval_s, check).run())
        await kit.settle()
        async with asyncio.timeout(10):
            while len(checked) < count:  # noqa: ASYNC110  bounded
                await asyncio.sleep(0.005)
        rounds.cancel()
        await asyncio.gather(rounds, return_exceptions=True)
        return checked[: 2 * TURNS]

    assert asyncio.run(story(600.0, 2)) == [SHARDS[0].url, SHARDS[TURNS].url]
    assert sorted(asyncio.run(story(0.05, 2 * TURNS))) == sorted(shard.url for shard in SHARDS)
