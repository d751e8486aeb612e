"""One case in virtual time, told by the same runner and judged by the same checkers as with real processes."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import aiohttp

from ..clients.gym_like import GymLikeClient
from ..faults.base import Layer, RouterHandle, Target
from ..history import History, Limits
from ..interposer import Interposer
from ..legs import Leg, Listener
from ..runner import play
from ..scenario import Case
from ..sim.settings import Settings
from ..stage import Stage
from ..toxiproxy import ToxicProxy
from ..wiretap import Wiretap
from .client import VirtualSession
from .core import Core
from .loop import VirtualLoop, VirtualSocket, virtual_world
from .network import Port
from .shard import VirtualFleet, VirtualShard
from .toxics import VirtualToxics

_PROBE_INTERVAL_S = 1.0
_BATCH_EVERY_S = 1.0
_CONNECT_TIMEOUT_S = 0.5


def run_virtual(case: Case, core: Core, seed: int) -> History:
    """Run one case. The same arguments give the same history, byte for byte. Raises what the run dies of."""
    logging.disable(logging.CRITICAL)  # thousands of routers, each of which would report each failure
    try:
        with virtual_world(seed) as run:
            history: History = run(_perform(case, core, seed))
            return history
    finally:
        logging.disable(logging.NOTSET)


async def _perform(case: Case, core: Core, seed: int) -> History:
    async with _stage(case, core, seed) as stage:
        return await play(stage)


class _VirtualListener:
    """`legs.Listener` on the network of a VirtualLoop."""

    def __init__(self, make: Callable[[], Leg], _backlog: int) -> None:
        self._ports = _loop().network.ports
        self.port = _loop().network.free_port()
        self._ports[self.port] = Port(make)

    def resume(self) -> None:
        self._ports[self.port].accepts.set()

    async def pause(self) -> None:
        self._ports[self.port].accepts.clear()

    async def block(self) -> None:
        await self.pause()

    async def close(self) -> None:
        self._ports.pop(self.port).accepts.set()


class _NoHandle(RouterHandle):
    """A router inside the process has no process of its own."""

    async def stop(self, signum: int) -> None:
        raise RuntimeError(f"no {signal.Signals(signum).name} in virtual time")

    async def start(self) -> None:
        raise RuntimeError("no start in virtual time")


@asynccontextmanager
async def _stage(case: Case, core: Core, seed: int) -> AsyncIterator[Stage]:
    """What `stage.set_stage` builds of processes."""
    scenario, limits = case.scenario, case.scenario.limits
    history = History(Limits(shards=scenario.fleet.shards, client="gym-like", seed=seed, **dict(limits)))
    network = _loop().network
    listen = cast("Callable[[Callable[[], Leg], int], Listener]", _VirtualListener)
    layers = {plan.fault.layer for plan in scenario.fault}
    async with AsyncExitStack() as stack:
        shards = [VirtualShard(_loop(), index, _settings(case, seed)) for index in range(scenario.fleet.shards)]
        targets, routes = [], []
        for shard in shards:
            await shard.ensure_ready(0.0)
            target, route = Target(shard), shard.port
            if Layer.SCRIPT in layers:
                interposer = await stack.enter_async_context(Interposer(shard.port, listen))
                target, route = Target(shard, interposer=interposer), interposer.port
            if Layer.TOXIC in layers:
                toxics = cast("ToxicProxy", VirtualToxics(network, route))
                target = Target(shard, toxics=toxics, interposer=target.interposer)
            targets.append(target)
            routes.append(f"http://127.0.0.1:{route}")
        port = network.free_port()
        serving = core(
            VirtualSocket(port),
            routes,
            seed=seed,
            backend_timeout_s=limits.deadline_s,
            connect_timeout_s=min(_CONNECT_TIMEOUT_S, limits.deadline_s),
            max_attempts=limits.max_attempts,
            stall_after_s=limits.stall_after_s,
            probe_interval_s=_PROBE_INTERVAL_S,
        )
        await stack.enter_async_context(serving)
        tap = await stack.enter_async_context(Wiretap(port, history.add, listen))
        client = GymLikeClient(f"http://127.0.0.1:{tap.port}/v1", cast("aiohttp.ClientSession", VirtualSession()))
        yield Stage(
            case=case,
            fleet=VirtualFleet(shards),
            targets=targets,
            routes=routes,
            router=_NoHandle(),
            entry_url=f"http://127.0.0.1:{tap.port}",
            client=client,
            history=history,
            generations=[shard.generation for shard in shards],
            batch_every_s=_BATCH_EVERY_S,
            witness_asks=1,
        )


def _settings(case: Case, seed: int) -> Settings:
    fleet = case.scenario.fleet
    return Settings(
        port=_loop().network.free_port(),
        seed=seed,
        token_ms=fleet.token_ms,
        max_model_len=fleet.max_model_len,
        sigterm=fleet.sigterm,
        dev=True,
    )


def _loop() -> VirtualLoop:
    return cast("VirtualLoop", asyncio.get_running_loop())
