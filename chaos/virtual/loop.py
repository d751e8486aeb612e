"""An asyncio event loop whose clock jumps to the next timer, and whose network is in memory.

asyncio's own `BaseEventLoop`, but for its timers: those of one moment keep their order here, and nothing is waited for.
"""

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from .network import Network, Port

_START_S = 1000.0
_LIVELOCK = 200_000  # turns of the loop in one moment


class StandstillError(RuntimeError):
    """Nothing can ever happen again, or time stands still: a deadlock or a livelock of what is run."""


class _Server(asyncio.AbstractServer):
    """As much of a server as its users need."""

    def __init__(self, loop: "VirtualLoop", number: int) -> None:
        self._loop = loop
        self._number = number
        self._port = loop.network.ports[number]

    def close(self) -> None:
        if self.is_serving():  # else a later one listens there
            del self._loop.network.ports[self._number]

    def is_serving(self) -> bool:
        return self._loop.network.ports.get(self._number) is self._port

    def get_loop(self) -> "VirtualLoop":
        return self._loop

    async def start_serving(self) -> None:
        """It does from the beginning."""

    async def serve_forever(self) -> None:
        await self._loop.create_future()

    async def wait_closed(self) -> None:
        """It is."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. `seed` decides the delays of its network."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._now = _START_S
        self._turns = 0  # in this moment
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self.network = Network(self, random.Random(seed))  # noqa: S311 - reproducible, not secret

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See BaseEventLoop. Timers of one moment run in the order in which they were set."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def _run_once(self) -> None:
        """Run what is ready; if nothing is, let the time pass until the next timer, at once."""
        timers, ready = self._timers, self._ready  # type: ignore[attr-defined]
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise StandstillError("everybody waits, and no timer is set")
            if timers[0][0] > self._now:
                self._now, self._turns = timers[0][0], 0
        self._turns += 1
        if self._turns > _LIVELOCK:
            raise StandstillError(f"{_LIVELOCK} turns of the event loop, and no time has passed")
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()  # noqa: SLF001 - as asyncio's own loop does

    async def create_connection(
        self,
        protocol_factory: Any,
        host: Any = None,  # noqa: ARG002 - always this one
        port: Any = None,
        **_: Any,
    ) -> Any:
        """Connect to a port of the network; the host is always this one."""
        return await self.network.connect(protocol_factory, port)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Any,
        host: Any = None,  # noqa: ARG002 - always this one
        port: Any = None,
        *,
        sock: Any = None,
        **_: Any,
    ) -> asyncio.AbstractServer:
        """Listen on a port of the network, or on the one that `sock` (a `VirtualSocket`) stands for."""
        number = sock.getsockname()[1] if sock is not None else port
        if number in self.network.ports:
            raise OSError(98, f"port {number} is taken")
        self.network.ports[number] = Port(protocol_factory)
        return _Server(self, number)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its moment comes."""

    def _write_to_self(self) -> None:
        """Nobody calls from another thread."""


class VirtualSocket:
    """A bound socket, as far as a server looks at it."""

    def __init__(self, port: int) -> None:
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        """Its address."""
        return ("127.0.0.1", self._port)

    def close(self) -> None:
        """It was never open."""


@contextlib.contextmanager
def virtual_world(seed: int) -> Iterator[Callable[[Any], Any]]:
    """Run coroutines on a VirtualLoop, in a process whose clock is that loop's and whose chance is the seed's.

    `time.monotonic`, `time.time` and `os.urandom` are replaced for the whole process, so that what runs does not have
    to be written for it, and cannot forget to use an injected clock. Not for programs with other threads.
    """
    loop = VirtualLoop(seed)
    chance = random.Random(~seed)  # noqa: S311 - reproducible, not secret
    replaced = mock.patch.multiple(time, monotonic=loop.time, time=loop.time)
    with (
        replaced,
        mock.patch.object(os, "urandom", chance.randbytes),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        yield runner.get_loop().run_until_complete  # `runner.run` would take the process's SIGINT for each run
