"""Several Ray nodes on one machine: a node dies with its shard, and the router serves from the others."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import psutil
import pytest

from gymproof.chaos.fleet import SimFleet
from gymproof.router.health import State

ray = pytest.importorskip("ray", reason="needs the ray extra")

from ray.cluster_utils import Cluster  # noqa: E402

SHARDS = 2


@pytest.fixture(scope="module", autouse=True)
def cluster(tools) -> Iterator[Cluster]:
    """A head node for the driver and its router, and a node for each shard."""
    with tools.alone():
        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        try:
            ray.init(address=nodes.address, log_to_driver=False)
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()


class ShardActor:
    """One shard, whose processes are the actor's and end with it."""

    def __init__(self, folder: str) -> None:
        self._runner = asyncio.Runner()
        self._fleet = SimFleet(1, folder=Path(folder), max_model_len=32_768)
        self._runner.run(self._fleet.__aenter__())

    def url(self) -> str:
        return self._fleet.shards[0].url

    def count(self) -> int:
        return len(self._fleet.served())


class NodeFleet:
    """A shard on each of several nodes, as far as a stage has to know. A context manager."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folders = [folder / f"node{n}" for n in range(SHARDS)]
        self._nodes = [cluster.add_node(num_cpus=1, resources={f"node{n}": 1}) for n in range(SHARDS)]
        shard_class = ray.remote(num_cpus=1)(ShardActor)
        self._actors = [
            shard_class.options(resources={f"node{n}": 1}).remote(str(self._folders[n])) for n in range(SHARDS)
        ]
        self.shards: list[Any] = [SimpleNamespace(url=ray.get(actor.url.remote())) for actor in self._actors]

    def served(self) -> list[Any]:
        """One entry a request; a node that is gone has taken its log with it."""
        entries: list[Any] = []
        for index, actor in enumerate(self._actors):
            with suppress(ray.exceptions.RayActorError):
                entries += [SimpleNamespace(shard=index)] * ray.get(actor.count.remote())
        return entries

    def kill_node(self, index: int) -> None:
        """End a node with all its processes. Ray ends its own and their children, so an engine would live on."""
        self._cluster.remove_node(self._nodes[index], allow_graceful=False)
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self._folders[index]) in word for word in process.info["cmdline"] or ()):
                process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for index, node in enumerate(self._nodes):
            if node in self._cluster.list_all_nodes():
                self.kill_node(index)


def test_a_whole_node_dies_with_its_shard(cluster, tools, tmp_path):
    async def story(fleet: NodeFleet) -> None:
        async with tools.open_stage(fleet) as stage:
            async with stage.load():
                await asyncio.to_thread(fleet.kill_node, 1)
            lost = stage.urls[1]
            await tools.until(lambda: stage.controller.states()[lost] is State.DEAD, "the ledger's verdict", 60.0)
            async with stage.load():
                pass

            assert stage.handle.instances == [await stage.router.actor.instance_id.remote()]

    with NodeFleet(cluster, tmp_path) as fleet:
        asyncio.run(story(fleet))
