"""Simulated shards without processes: the API server and the engine of `chaos/sim` on a VirtualLoop.

What a process adds is here: it can be stopped, and it can die without another word.
"""

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..history import Served
from ..served import ServedBook
from ..shard_log import ShardLog
from ..sim.api import Api
from ..sim.engine import EngineCore
from ..sim.engine_client import EngineClient
from ..sim.settings import Settings
from .loop import VirtualLoop
from .network import Process

_START_S = 0.3  # from the start of a dead shard to its first answer


class _Log(ShardLog):
    """Writes into a book; what is dead writes no more."""

    def __init__(self, book: ServedBook, life: int) -> None:
        self._book = book
        self._life = str(life)
        self._count = 0
        self.mute = False
        self._write({"event": "start"})

    def _write(self, event: dict[str, Any]) -> None:
        if not self.mute:
            self._book.take(event)


class _Engine(EngineClient):
    """The engine together with its client: what one says to the other waits while either is stopped."""

    def __init__(self, settings: Settings, *, notice_s: float, on_death: Callable[[bool], None]) -> None:
        super().__init__(0, notice_s=notice_s, on_death=on_death)
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._commands: deque[dict[str, Any]] = deque()
        self._events: deque[dict[str, Any]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._over = False
        self.stopped = False
        self.server_stopped = False

    async def connect(self, engine: object = None) -> None:  # noqa: ARG002 - there is no socket
        """Start it."""
        self._core = EngineCore(self._settings, self._say)
        await self.ready.wait()

    def kill(self, *, unseen: bool) -> None:
        """See EngineClient."""
        self._unseen = unseen
        if not self._over:
            self._over = True
            self.connection_lost(None)

    def stop(self, *, engine: bool, server: bool) -> None:
        """Which of the two processes are stopped from now on."""
        self.stopped, self.server_stopped = engine, server
        self._turn()
        self._hear()

    def _send(self, command: dict[str, Any]) -> None:
        self._commands.append(command)
        self._loop.call_soon(self._turn)

    def _say(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        self._loop.call_soon(self._hear)

    def _turn(self) -> None:
        while self._commands and not self.stopped and not self._over:
            self._core.obey(self._commands.popleft())
        if self._timer is None and not self.stopped and not self._over and self._core.busy():
            self._timer = self._loop.call_later(self._settings.token_ms / 1000, self._step)

    def _step(self) -> None:
        self._timer = None
        if not self.stopped and not self._over:
            self._core.step(self._loop.time())
            self._turn()

    def _hear(self) -> None:
        while self._events and not self.server_stopped:
            self._take(self._events.popleft())


class VirtualShard:
    """See `faults.base.ShardProcess`. `pid`s are lives: `generation` counts them."""

    def __init__(self, loop: VirtualLoop, index: int, settings: Settings) -> None:
        self.index = index
        self.port = settings.port
        self.url = f"http://127.0.0.1:{settings.port}"
        self.generation = 0
        self._loop = loop
        self._settings = settings
        self._book = ServedBook(index)
        self._doomed = True

    def served(self) -> list[Served]:
        """What it was asked so far."""
        return self._book.served()

    def in_flight(self) -> int:
        """Generations begun and not ended; none once it is dead."""
        return 0 if self._log.mute or self._api.ended.is_set() else self._book.in_flight()

    def begun(self, calls: str, since: float) -> int:
        """See ServedBook."""
        return self._book.begun(calls, since)

    def signal(self, process: str, signum: int) -> None:
        """See ShardProcess."""
        parts = ("server", "engine") if process == "group" else (process,)
        for part in parts:
            self._signals[part, signal.Signals(signum)]()

    async def kill_node(self) -> None:
        """See ShardProcess: a shard is all that its node has."""
        self.signal("group", signal.SIGKILL)

    async def ensure_ready(self, within_s: float) -> None:  # noqa: ARG002 - it always comes up
        """See ShardProcess."""
        if self._doomed or self._api.ended.is_set():
            if self.generation:
                self._kill_server()
                await asyncio.sleep(_START_S)
            await self._start()
        self._stop(engine=False, server=False)

    async def _start(self) -> None:
        self.generation += 1
        self._log = _Log(self._book, self.generation)
        self._api = Api(self._settings, self._log, self._make_engine)
        self._process = Process()
        self._doomed = False
        await self._engine.connect()
        await self._api.listen()
        self._loop.network.ports[self.port].process = self._process
        self._signals: dict[tuple[str, signal.Signals], Callable[[], None]] = {
            ("server", signal.SIGKILL): self._kill_server,
            ("server", signal.SIGTERM): self._terminate,
            ("server", signal.SIGSTOP): lambda: self._stop(engine=self._engine.stopped, server=True),
            ("engine", signal.SIGKILL): self._kill_engine,
            ("engine", signal.SIGSTOP): lambda: self._stop(engine=True, server=self._process.stopped),
        }

    def _make_engine(self, *, notice_s: float, on_death: Callable[[bool], None]) -> EngineClient:
        self._engine = _Engine(self._settings, notice_s=notice_s, on_death=on_death)
        return self._engine

    def _stop(self, *, engine: bool, server: bool) -> None:
        self._engine.stop(engine=engine, server=server)
        if server:
            self._process.stop()
        else:
            self._process.go_on()

    def _kill_server(self) -> None:
        self._doomed = True
        self._log.mute = True
        self._process.stopped = False
        self._api.stop()
        self._engine.kill(unseen=True)

    def _kill_engine(self) -> None:
        self._doomed = True
        self._engine.kill(unseen=False)

    def _terminate(self) -> None:
        self._doomed = True
        self._api.terminate()


class VirtualFleet:
    """Shards of one seed, as replicas share weights."""

    pace = 1.0

    def __init__(self, shards: Sequence[VirtualShard]) -> None:
        self.shards = shards

    def served(self) -> list[Served]:
        """What every shard was asked so far."""
        return [served for shard in self.shards for served in shard.served()]
