"""`--fleet ray`: what a node has goes with it, and nothing outlives the harness."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from gymproof.chaos.ray_fleet import RayClusterError, RayFleet
from gymproof.chaos.waiting import wait_until

ray = pytest.importorskip("ray", reason="needs the ray extra")

WITHIN_S = 60.0
GYM_CHAOS = str(Path(sys.executable).with_name("gym-chaos"))


@pytest.fixture(scope="module", autouse=True)
def cluster() -> None:
    """Each fleet has a Ray of its own, and is found by its processes."""
    ray.shutdown()


def raylets(fleet: RayFleet) -> set[psutil.Process]:
    return {process for process in everything(fleet.cluster.pid) if program(process).endswith("/raylet")}


def everything(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def shards_of(folder: Path) -> list[psutil.Process]:
    """Whoever logs there, be it an orphan."""
    return [process for process in psutil.process_iter(["cmdline"]) if f"{folder}/" in str(process.info["cmdline"])]


def program(process: psutil.Process) -> str:
    """The first word of its command line; none once it is gone."""
    with suppress(psutil.Error, IndexError):
        return process.cmdline()[0]
    return ""


async def ended(processes: list[psutil.Process]) -> bool:
    """Whether they all end. A zombie has: an orphan's is reaped by init, when init likes."""
    return await wait_until(lambda: not any(map(lives, processes)), WITHIN_S)


def lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def folder_of(cluster_pid: int) -> Path:
    return Path(psutil.Process(cluster_pid).environ()["RAY_TMPDIR"])


def test_a_lost_node_is_replaced_with_its_shard_on_the_same_port(tmp_path):
    async def story() -> None:
        async with RayFleet(2, folder=tmp_path) as fleet:
            lost, other = fleet.shards
            before, processes, folder = raylets(fleet), everything(lost.pid("server")), folder_of(fleet.cluster.pid)
            lost.signal("server", signal.SIGKILL)  # its engine is nobody's child now
            await lost.kill_node()
            await lost.kill_node()
            assert await ended(processes)
            assert len(before & raylets(fleet)) == 2  # the head's and the other shard's
            assert other.alive()

            await lost.ensure_ready(WITHIN_S)
            assert len(raylets(fleet)) == 3
            assert (lost.generation, other.generation) == (2, 1)
            processes = everything(fleet.cluster.pid)
        assert await ended(processes)
        assert not folder.exists()

    asyncio.run(story())


def test_a_start_that_is_cancelled_leaves_nothing(tmp_path):
    async def story() -> None:
        before = set(psutil.Process().children(recursive=True))
        fleet = RayFleet(1, folder=tmp_path)
        starting = asyncio.create_task(fleet.__aenter__())
        assert await wait_until(lambda: len(fleet.shards) == 1, WITHIN_S), "the cluster is not up"
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        left = set(psutil.Process().children(recursive=True)) - before
        assert [program(process) for process in left if lives(process)] == []
        assert shards_of(tmp_path) == []

    asyncio.run(story())


def test_the_end_of_the_clusters_program_is_an_error_that_says_so(tmp_path):
    async def story() -> None:
        async with RayFleet(1, folder=tmp_path) as fleet:
            os.kill(fleet.cluster.pid, signal.SIGKILL)
            with pytest.raises(RayClusterError, match="the Ray cluster has ended"):
                await fleet.shards[0].kill_node()

    asyncio.run(story())


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_a_harness_that_is_killed_or_interrupted_takes_its_cluster_along(harness, signum):
    told = "fleet.shards[0].signal('engine', signal.SIGSTOP)", "print(fleet.cluster.pid, flush=True)"
    with harness(RayFleet, 1, *told) as (process, (cluster,)):
        started, folder = everything(process.pid), folder_of(cluster)
        (actor,) = [child for child in started if program(child) == "ray::ShardActor"]
        actor.suspend()  # it does not see its raylet end
        assert folder.exists()
        process.send_signal(signum)
        process.wait(WITHIN_S)

    assert asyncio.run(ended(started)), "processes outlive their harness"
    assert asyncio.run(wait_until(lambda: not folder.exists(), WITHIN_S)), "its files outlive the harness"


def test_the_scenario_of_the_lost_node_passes(tmp_path):
    ran = subprocess.run(
        [GYM_CHAOS, "run", "kill_node", "--fleet", "ray", "--shards", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 of 2 cases passed" in ran.stdout
