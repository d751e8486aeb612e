"""How long a router stands: for one case, or for as many as want the same."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from gymproof.chaos.standing import Standing, Standings


class Stages:
    """Builds standings and counts them."""

    def __init__(self):
        self.built = self.ended = 0

    @asynccontextmanager
    async def build(self):
        self.built += 1
        try:
            yield Standing([], [f"route {self.built}"], None)
        finally:
            self.ended += 1


def tell(story):
    """Run a story; what is left standing has to end with it."""
    stages = Stages()
    asyncio.run(story(stages))
    assert stages.ended == stages.built
    return stages.built


@pytest.mark.parametrize(("keep", "built"), [(False, 3), (True, 1)])
def test_it_is_kept_for_who_asks_by_the_same_key(keep, built):
    async def story(stages):
        standings = Standings(keep=keep)
        for _ in range(3):
            async with standings.open("key", stages.build) as standing:
                standing.well = True
        await standings.close()

    assert tell(story) == built


def test_another_key_is_another_router_and_the_first_one_stays():
    async def story(stages):
        standings = Standings(keep=True)
        for key in ("a", "b", "a"):
            async with standings.open(key, stages.build) as standing:
                standing.well = True
        await standings.close()

    assert tell(story) == len("ab")


@pytest.mark.parametrize("how", ["is not found well", "fails"])
def test_after_a_case_that(how):
    """It is not kept: the next case wants one that nothing was done to."""

    async def story(stages):
        standings = Standings(keep=True)
        for _ in range(2):
            with suppress(RuntimeError):
                async with standings.open("key", stages.build):
                    if how == "fails":
                        raise RuntimeError
        assert stages.ended == stages.built
        await standings.close()

    assert tell(story) == 2
