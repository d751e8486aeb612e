"""The backends of a run: a row of shards, each a process tree that is killed and stopped for real."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from .faults.base import ShardProcess
from .guard import Guard
from .history import Served
from .ports import PortLease
from .processes import ProcessGroup
from .served import LogReader

ProcessName = Literal["server", "engine", "group"]
ENGINE = "VLLM::EngineCore"
_POLL_S = 0.02


class ShardStartError(RuntimeError):
    """A shard did not come up; the message has the last lines of its output."""


class Shard(ShardProcess, Protocol):
    """What a runner needs of a shard besides what faults need."""

    port: int
    generation: int  # how often it was started: another number is another process

    def in_flight(self) -> int:
        """Generations begun and not ended, also while the shard is stopped."""

    def alive(self) -> bool:
        """Whether both of its processes live."""


class Fleet(Protocol):
    """Several shards; an async context manager that starts and stops them."""

    @property
    def shards(self) -> Sequence[Shard]:
        """The shards, by index."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def served(self) -> list[Served]:
        """What every shard was asked so far."""


class SimShard:
    """One simulated vLLM on a leased port, which it keeps over restarts."""

    def __init__(self, index: int, port: int, folder: Path, options: Sequence[str], guard: Guard) -> None:
        self.index = index
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"shard-{index}.jsonl"
        self.generation = 0
        self._output = folder / f"shard-{index}.out"
        self._options = options
        self._guard = guard
        self._reader = LogReader(self.log, index)
        self._group: ProcessGroup | None = None
        self._doomed = False  # it was sent a signal that ends it, be it at once or in a second

    def served(self) -> list[Served]:
        """What this shard was asked so far."""
        return self._reader.served()

    def in_flight(self) -> int:
        """Generations begun and not ended, as its log says; none once it is dead."""
        return self._reader.in_flight() if self.pid("server") is not None else 0

    def pid(self, process: ProcessName) -> int | None:
        """The process's id, or the group's; None when it does not live."""
        group = self._group
        if group is None:
            return None
        if process == "engine":
            return group.find(ENGINE)
        return group.pid if group.exit_code() is None else None

    def alive(self) -> bool:
        """Whether API server and engine both live, be they stopped."""
        return self.pid("server") is not None and self.pid("engine") is not None

    def signal(self, process: str, signum: int) -> None:
        """Send a signal to "server", "engine" or "group"; an already ended process is no error."""
        group = self._group
        if group is None:
            return
        self._doomed = self._doomed or signum not in {signal.SIGSTOP, signal.SIGCONT}
        if process == "group":
            group.signal_group(signum)
        elif process == "server":
            group.signal(signum)
        elif process != "engine":
            raise ValueError(f"process {process!r}: a shard has 'server', 'engine' and 'group'")
        elif (engine := group.find(ENGINE)) is not None:
            os.kill(engine, signum)

    async def ensure_ready(self, within_s: float) -> None:
        """Resume it if it is stopped, start it again on its port if it is dead, and wait until it serves.

        Raises ShardStartError when it ends, or does not serve within `within_s` seconds.
        """
        last = time.monotonic() + within_s
        if self._doomed or not self.alive():
            self._start()
        self.signal("group", signal.SIGCONT)
        while not await self._serves():
            group = self._group
            if group is None or group.exit_code() is not None:
                raise ShardStartError(f"shard {self.index} ended while starting:\n{group and group.tail()}")
            if time.monotonic() > last:
                raise ShardStartError(f"shard {self.index} does not serve after {within_s} s:\n{group.tail()}")
            await asyncio.sleep(_POLL_S)

    def _start(self) -> None:
        self.close()
        argv = [sys.executable, "-m", "gymproof.chaos.sim", "--port", str(self.port), "--log", str(self.log)]
        self._group = ProcessGroup([*argv, *self._options], guard=self._guard, output=self._output)
        self._doomed = False
        self.generation += 1

    async def _serves(self) -> bool:
        """Whether the API server answers and its engine does: `/health` alone is 200 while the engine is stopped."""
        try:
            async with asyncio.timeout(1.0):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    writer.write(b"GET /is_paused HTTP/1.1\r\nHost: shard\r\nConnection: close\r\n\r\n")
                    return (await reader.readline()).split()[1:2] == [b"200"]
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    def close(self) -> None:
        """Kill it and everything it has started."""
        if self._group is not None:
            self._group.close()
            self._group = None


class SimFleet:
    """Simulated shards, started together; `folder` gets their logs and their output.

    Shards of one fleet share the seed, as replicas share weights: they answer one prompt with the same tokens.
    `token_ms` is what a decoding step takes; `shutdown_timeout_s` is how long a shard lets requests finish after
    SIGTERM, and 0, as in vLLM, cuts them.
    """

    def __init__(
        self,
        shards: int = 3,
        *,
        folder: Path,
        seed: int = 0,
        model: str = "tiny",
        token_ms: float = 5.0,
        max_model_len: int = 4096,
        shutdown_timeout_s: float = 0.0,
        ready_within_s: float = 20.0,
    ) -> None:
        self._count = shards
        self._folder = folder
        self._ready_within_s = ready_within_s
        self._options = (
            *("--seed", str(seed), "--model", model, "--token-ms", str(token_ms)),
            *("--max-model-len", str(max_model_len), "--shutdown-timeout-s", str(shutdown_timeout_s), "--dev"),
        )
        self._stack = ExitStack()
        self.shards: list[SimShard] = []

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            guard = self._stack.enter_context(Guard())
            for index in range(self._count):
                lease = self._stack.enter_context(PortLease())
                shard = SimShard(index, lease.port, self._folder, self._options, guard)
                self._stack.callback(shard.close)
                self.shards.append(shard)
            async with asyncio.TaskGroup() as starts:
                for shard in self.shards:
                    starts.create_task(shard.ensure_ready(self._ready_within_s))
        except ExceptionGroup as errors:
            self._stack.close()
            raise errors.exceptions[0] from None
        except BaseException:
            self._stack.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def served(self) -> list[Served]:
        """What every shard was asked so far."""
        return [served for shard in self.shards for served in shard.served()]
