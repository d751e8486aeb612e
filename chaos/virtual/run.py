"""One case in virtual time, told by the same runner and judged by the same checkers as with real processes."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import aiohttp

from ..faults.base import Layer, RouterHandle, Target
from ..history import History, Limits
from ..interposer import Interposer
from ..legs import Leg, Listen
from ..runner import play
from ..scenario import Case, LimitsTable
from ..sim.settings import Settings
from ..stage import Stage
from ..toxiproxy import ToxicProxy
from ..wiretap import Wiretap
from .client import VirtualClient, VirtualSession
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


_LISTEN = cast("Listen", _VirtualListener)


class _NoHandle(RouterHandle):
    """A router inside the process has no process of its own."""

    async def stop(self, signum: int) -> None:
        raise RuntimeError(f"no {signal.Signals(signum).name} in virtual time")

    async def start(self) -> None:
        raise RuntimeError("no start in virtual time")


@asynccontextmanager
async def _stage(case: Case, core: Core, seed: int) -> AsyncIterator[Stage]:
    """What `stage.set_stage` builds of processes."""
    fleet, limits = case.scenario.fleet, case.scenario.limits
    history = History(Limits(shards=fleet.shards, client="gym-like", seed=seed, **dict(limits)))
    shards = [VirtualShard(_loop(), index, _settings(case, seed)) for index in range(fleet.shards)]
    async with AsyncExitStack() as stack:
        targets, routes = [], []
        for shard in shards:
            await shard.ensure_ready(0.0)
            target, route = await _with_hops(stack, shard, case)
            targets.append(target)
            routes.append(route)
        port = _loop().network.free_port()
        await stack.enter_async_context(core(VirtualSocket(port), routes, seed=seed, **_router_settings(limits)))
        tap = await stack.enter_async_context(Wiretap(port, history.add, _LISTEN))
        session = cast("aiohttp.ClientSession", VirtualSession())
        yield Stage(
            case=case,
            fleet=VirtualFleet(shards),
            targets=targets,
            routes=routes,
            router=_NoHandle(),
            entry_url=tap.url,
            client=VirtualClient(f"{tap.url}/v1", session),
            history=history,
            generations=[shard.generation for shard in shards],
            batch_every_s=_BATCH_EVERY_S,
            witness_asks=1,
        )


async def _with_hops(stack: AsyncExitStack, shard: VirtualShard, case: Case) -> tuple[Target, str]:
    """A shard behind the hops that the faults on it need, and the URL of the first one."""
    layers = {plan.fault.layer for plan in case.scenario.fault if shard.index in case.targets(plan)}
    interposer, toxics, port = None, None, shard.port
    if Layer.SCRIPT in layers:
        interposer = await stack.enter_async_context(Interposer(port, _LISTEN))
        port = interposer.port
    if Layer.TOXIC in layers:
        toxics = cast("ToxicProxy", VirtualToxics(_loop().network, port))
    return Target(shard, toxics, interposer), f"http://127.0.0.1:{port}"


def _router_settings(limits: LimitsTable) -> dict[str, Any]:
    return {
        "backend_timeout_s": limits.deadline_s,
        "connect_timeout_s": min(_CONNECT_TIMEOUT_S, limits.deadline_s),
        "max_attempts": limits.max_attempts,
        "stall_after_s": limits.stall_after_s,
        "probe_interval_s": _PROBE_INTERVAL_S,
    }


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
