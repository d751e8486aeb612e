"""A cluster of several nodes on one machine: a node dies with its shard, and the router serves from the others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gymproof.chaos.ray_fleet import RayFleet
from gymproof.router.health import State

ray = pytest.importorskip("ray", reason="needs the ray extra")

READY_WITHIN_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def cluster() -> None:
    """A driver has one Ray at a time, and each story here has a cluster of its own."""
    ray.shutdown()


@asynccontextmanager
async def connected_fleet(folder) -> AsyncIterator[RayFleet]:
    """Shards on nodes of their own; this process is a driver on the head node."""
    async with RayFleet(2, folder=folder, max_model_len=32_768) as fleet:
        ray.init(fleet.cluster.address, log_to_driver=False)
        try:
            yield fleet
        finally:
            ray.shutdown()


def test_a_whole_node_dies_with_its_shard_under_load_and_comes_back(tools, tmp_path):
    async def story() -> None:
        async with connected_fleet(tmp_path) as fleet, tools.open_stage(fleet) as stage:
            lost, shard = stage.urls[1], fleet.shards[1]
            async with stage.load():
                await shard.kill_node()
            await tools.until(lambda: stage.controller.states()[lost] is State.DEAD, "the ledger's verdict", 60.0)
            before = stage.requests()
            async with stage.load():
                pass
            assert stage.requests()[1] == before[1]

            await shard.ensure_ready(READY_WITHIN_S)
            await stage.controller.report_refit(lost)
            async with stage.load():
                pass
            assert stage.requests()[1] > before[1]
            assert stage.handle.instances == [await stage.router.actor.instance_id.remote()]

    asyncio.run(story())
