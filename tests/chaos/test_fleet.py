import asyncio
import os
import signal
import socket

import psutil
import pytest

from gymproof.chaos.fleet import ShardStartError, SimFleet
from gymproof.chaos.waiting import wait_until

WITHIN_S = 20.0


def connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def pids_of(fleet: SimFleet) -> list[int]:
    return [pid for shard in fleet.shards for name in ("server", "engine") if (pid := shard.pid(name)) is not None]


def children() -> set[psutil.Process]:
    """What this process has started: a session's fixtures may have started something too."""
    return set(psutil.Process().children(recursive=True))


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_shard_is_a_server_and_an_engine_in_a_group_of_their_own(tmp_path):
    async def story():
        async with SimFleet(2, folder=tmp_path) as fleet:
            assert len(set(pids_of(fleet))) == 4
            for shard in fleet.shards:
                server, engine = shard.pid("server"), shard.pid("engine")
                assert os.getpgid(server) == os.getpgid(engine) == shard.pid("group") == server
                assert os.getpgid(server) != os.getpgid(0)
                assert psutil.Process(engine).name() == "VLLM::EngineCor"
                assert psutil.Process(engine).ppid() == server
                assert shard.url == f"http://127.0.0.1:{shard.port}"
                assert (shard.alive(), shard.generation, shard.in_flight()) == (True, 1, 0)

    asyncio.run(story())


def test_nothing_is_left_after_the_fleet(tmp_path):
    before = children()

    async def story():
        async with SimFleet(2, folder=tmp_path) as fleet:
            pids, ports = pids_of(fleet), [shard.port for shard in fleet.shards]
            fleet.shards[0].signal("group", signal.SIGSTOP)
            fleet.shards[1].signal("server", signal.SIGKILL)  # its engine is an orphan now
        assert not any(map(lives, pids))
        assert not any(map(connects, ports))
        assert children() == before

    asyncio.run(story())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, asyncio.CancelledError])
def test_nothing_is_left_after_an_error_in_the_middle(tmp_path, error):
    pids = []

    async def story():
        async with SimFleet(1, folder=tmp_path) as fleet:
            pids.extend(pids_of(fleet))
            raise error

    with pytest.raises(error):
        asyncio.run(story())
    assert len(pids) == 2
    assert not any(map(lives, pids))


def test_nothing_is_left_when_the_start_is_cancelled(tmp_path):
    before = children()

    async def story():
        fleet = SimFleet(2, folder=tmp_path)
        task = asyncio.create_task(fleet.__aenter__())
        assert await wait_until(lambda: task.done() or len(fleet.shards) == 2, WITHIN_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert children() == before

    asyncio.run(story())


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_a_harness_that_is_killed_or_interrupted_takes_its_shards_along_stopped_ones_too(harness, signum):
    told = (
        "pids = [shard.pid(name) for shard in fleet.shards for name in ('server', 'engine')]",
        "fleet.shards[0].signal('engine', signal.SIGSTOP)",
        "fleet.shards[1].signal('server', signal.SIGKILL)",
        "print(*pids, flush=True)",
    )
    with harness(SimFleet, 2, *told) as (process, pids):
        process.send_signal(signum)
        process.wait(WITHIN_S)

    assert len(pids) == 4
    assert asyncio.run(wait_until(lambda: not any(map(lives, pids)), WITHIN_S)), "shards outlive their harness"


@pytest.mark.parametrize(
    ("process", "signum", "restarted"),
    [
        ("server", signal.SIGKILL, True),
        ("engine", signal.SIGKILL, True),
        ("group", signal.SIGKILL, True),
        ("server", signal.SIGTERM, True),
        ("engine", signal.SIGSTOP, False),
        ("server", signal.SIGSTOP, False),
        ("group", signal.SIGSTOP, False),
    ],
)
def test_ensure_ready_resumes_what_is_stopped_and_restarts_what_is_dead(tmp_path, process, signum, restarted):
    async def story():
        async with SimFleet(1, folder=tmp_path) as fleet:
            shard = fleet.shards[0]
            before = pids_of(fleet), shard.port
            shard.signal(process, signum)
            await shard.ensure_ready(WITHIN_S)
            assert shard.alive()
            assert shard.generation == (2 if restarted else 1)
            assert (pids_of(fleet) == before[0]) == (not restarted)
            assert shard.port == before[1]
            assert connects(shard.port)
            await shard.ensure_ready(WITHIN_S)
            assert shard.generation == (2 if restarted else 1)
            if restarted:
                assert not any(map(lives, before[0]))

    asyncio.run(story())


def test_a_shard_binds_its_port_again_and_again_while_clients_are_connected(tmp_path):
    async def story():
        async with SimFleet(1, folder=tmp_path) as fleet:
            shard = fleet.shards[0]
            for life in range(1, 6):
                assert shard.generation == life
                reader, writer = await asyncio.open_connection("127.0.0.1", shard.port)
                writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
                shard.signal("group", signal.SIGKILL)
                await shard.ensure_ready(WITHIN_S)
                writer.transport.abort()

    asyncio.run(story())


def test_a_signal_to_what_has_ended_is_no_error(tmp_path):
    async def story():
        async with SimFleet(1, folder=tmp_path) as fleet:
            shard = fleet.shards[0]
            shard.signal("group", signal.SIGKILL)
            assert await wait_until(lambda: not shard.alive(), WITHIN_S)
            for process in ("server", "engine", "group"):
                shard.signal(process, signal.SIGTERM)
            with pytest.raises(ValueError, match="'server', 'engine' and 'group'"):
                shard.signal("gpu", signal.SIGTERM)

    asyncio.run(story())


def test_a_shard_that_cannot_start_says_why(tmp_path):
    async def story():
        async with SimFleet(1, folder=tmp_path, model="a", max_model_len="many"):
            pass

    with pytest.raises(ShardStartError, match="argument --max-model-len: invalid int value: 'many'"):
        asyncio.run(story())


def test_a_shard_that_does_not_get_ready_in_time_is_an_error(tmp_path):
    async def story():
        async with SimFleet(1, folder=tmp_path, ready_within_s=0.0):
            pass

    before = children()
    with pytest.raises(ShardStartError, match=r"does not serve after 0.0 s"):
        asyncio.run(story())
    assert children() == before
