"""A stage on a real local Ray: simulated shards, the router as an actor, its controller, the NeMo-Gym client.

One Ray for each test worker, started at its first test here; `test_nodes.py` has others.
"""

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from gymproof.chaos.clients import open_client
from gymproof.chaos.clients.rollouts import run_load
from gymproof.chaos.fleet import SimFleet
from gymproof.chaos.ports import PortLease
from gymproof.router.controller import FleetController, RouterHandle

# Under `uv run` Ray would start each of its workers by `uv run` too, which is slow and may change the environment.
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"

try:
    import ray

    from gymproof.router.actor import StartedRouter, start_router_actor
except ImportError:  # the tests themselves are skipped where there is no Ray
    ray = None

ACTOR = "ray::GenerationRouterActor"
TICK_S = 0.3
AGAIN_WITHIN_S = 30.0  # a restart takes 2 s on an idle machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.ray)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    rays = [process for process in psutil.Process().children(recursive=True) if is_ray(process)]
    ray.shutdown()
    assert psutil.wait_procs(rays, timeout=20.0)[1] == []


@pytest.fixture(scope="module", autouse=True)
def cluster() -> None:
    if not ray.is_initialized():
        ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False)


class CountingHandle:
    """Sums up what the controller has drained."""

    def __init__(self, handle: RouterHandle) -> None:
        self._handle = handle
        self.set_serving_backends = handle.set_serving_backends
        self.announce_pause, self.announce_resume = handle.announce_pause, handle.announce_resume
        self.successes = self.failures = 0
        self.instances: list[str] = []

    async def instance_id(self) -> str:
        instance = await self._handle.instance_id()
        if instance not in self.instances:
            self.instances.append(instance)
        return instance

    async def drain_backend_outcomes(self) -> dict[str, tuple[int, int]]:
        outcomes = await self._handle.drain_backend_outcomes()
        self.successes += sum(successes for successes, _ in outcomes.values())
        self.failures += sum(failures for _, failures in outcomes.values())
        return outcomes


class Stage:
    """What a test needs of one started router. `fleet` says where its shards are and what they were asked."""

    def __init__(self, fleet: Any, router: "StartedRouter", client: Any) -> None:
        self.fleet = fleet
        self.router = router
        self.client = client
        self.urls = [f"{shard.url}/v1" for shard in fleet.shards]
        self.handle = CountingHandle(router.handle())
        self.controller = FleetController(self.handle, self.urls)
        self.port = int(router.base_url.removesuffix("/v1").rpartition(":")[2])
        self._loads = 0
        self._asked = 0

    def requests(self) -> Counter[int]:
        """How many requests of clients each shard has logged, by its index."""
        return Counter(served.shard for served in self.fleet.served())

    def answered(self) -> int:
        """How many answers of shards have gone through the router, or were cut off on the way."""
        return self.requests().total() + self._asked

    async def pid_other_than(self, old: int | None) -> int:
        """The actor's next process."""
        return await until(lambda: (pid := actor_pid()) != old and pid, "another process of the actor", AGAIN_WITHIN_S)

    def kill(self) -> int:
        """SIGKILL of the actor's process, whose number is returned once the kernel has ended it."""
        pid = actor_pid()
        assert pid is not None
        kill(pid)
        return pid

    async def served_again(self, within_s: float = AGAIN_WITHIN_S) -> float:
        """Seconds until the router passes on a shard's own answer, on a connection of its own each time."""
        started = time.monotonic()
        while time.monotonic() < started + within_s:
            with suppress(OSError, TimeoutError):
                if await asyncio.wait_for(ask_models(self.port), 5.0) == b"200":
                    self._asked += 1  # which shards do not log
                    return time.monotonic() - started
            await asyncio.sleep(0.05)
        pytest.fail(f"no shard's answer through port {self.port} within {within_s} s")

    @asynccontextmanager
    async def load(self, rollouts: int = 6, turns: int = 8) -> AsyncIterator[None]:
        """Rollouts of the real client that are under way inside; at the end every one has succeeded."""
        self._loads += 1
        before = self.requests().total()
        load = asyncio.create_task(
            run_load(
                self.client,
                rollouts=rollouts,
                turns=turns,
                concurrency=rollouts,
                max_tokens=24,
                phase="load",
                name=f"load{self._loads}",
                record=lambda _: None,
            )
        )
        try:
            await until(lambda: self.requests().total() >= before + rollouts, "rollouts under way", 20.0)
            yield
            async with asyncio.timeout(90.0):
                ended = await load
        finally:
            load.cancel()
        assert [rollout.error for rollout in ended] == [""] * rollouts

    async def came_back(self, restarts: int = 1) -> None:
        """The same URL, another process, and every drained success is one that a shard has served."""
        assert await self.router.actor.base_url.remote() == self.router.base_url
        await self.controller.tick()
        assert len(self.handle.instances) == restarts + 1
        assert 0 < self.handle.successes <= self.answered()
        assert self.handle.failures == 0


def is_ray(process: psutil.Process) -> bool:
    """Whether it is one of Ray's: this worker may have other children."""
    with suppress(psutil.NoSuchProcess):
        return process.name().startswith(("ray", "gcs_server"))
    return False


def actor_pid() -> int | None:
    """The process of this test worker's one router's actor, also while it is in its constructor."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, IndexError):
            if process.cmdline()[0].startswith(ACTOR):
                return process.pid
    return None


def kill(pid: int) -> None:
    """SIGKILL; returns once the kernel has ended the process."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        process.kill()
        process.wait(10.0)


async def until(condition: Callable[[], Any], what: str, within_s: float) -> Any:
    """What `condition` gives once it is true."""
    last = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > last:
            pytest.fail(f"waited {within_s} s for {what}")
        await asyncio.sleep(0.02)
    return value


async def ask_models(port: int) -> bytes:
    """The status of GET /v1/models."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: router\r\nConnection: close\r\n\r\n")
        return (await reader.readline()).split(b" ")[1]
    except IndexError:
        raise ConnectionError("closed without an answer") from None
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def listening(port: int) -> socket.socket:
    """Another program's listener: it accepts nothing. It gets the port as soon as nobody listens there."""
    last = time.monotonic() + 10.0
    while True:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
            sock.listen()
        except OSError:
            sock.close()
            if time.monotonic() > last:
                raise
            time.sleep(0.001)
        else:
            return sock


@asynccontextmanager
async def open_stage(fleet: Any, **settings: Any) -> AsyncIterator[Stage]:
    """A router in front of a fleet that runs, its controller, a client."""
    settings = {"backend_timeout_s": 20.0, "host": "127.0.0.1", **settings}
    urls = [f"{shard.url}/v1" for shard in fleet.shards]
    with PortLease() as lease:
        ports = range(lease.port, lease.port + 1)
        router = await asyncio.to_thread(start_router_actor, backend_urls=urls, ports=ports, **settings)
        with router:
            async with open_client("nemo-gym", router.base_url) as client:
                stage = Stage(fleet, router, client)
                ticking = asyncio.create_task(stage.controller.run(TICK_S))
                try:
                    await stage.served_again()
                    yield stage
                    assert not ticking.done(), ticking.exception()
                finally:
                    ticking.cancel()
                    await asyncio.gather(ticking, return_exceptions=True)


@pytest.fixture
def on_stage(tmp_path: Path) -> Callable[..., None]:
    """Runs an async story on a stage of its own: `on_stage(story, **settings)`."""

    def run(story: Callable[[Stage], Awaitable[None]], **settings: Any) -> None:
        async def play() -> None:
            async with (
                SimFleet(2, folder=tmp_path, max_model_len=32_768) as fleet,
                open_stage(fleet, **settings) as stage,
            ):
                await story(stage)

        asyncio.run(play())

    return run


@pytest.fixture(scope="session")
def tools() -> SimpleNamespace:
    """What stories and tests share."""
    return SimpleNamespace(actor_pid=actor_pid, kill=kill, listening=listening, open_stage=open_stage, until=until)
