"""The backends of a run: a row of shards, each a process tree that is killed and stopped for real."""

import asyncio
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Literal, Self

from .asking import MODEL, chat_body, post, status_of
from .guard import Guard
from .history import Served
from .ports import PortLease
from .processes import Group, ProcessGroup
from .served import LogReader
from .sim.settings import ENGINE_COMM

ProcessName = Literal["server", "engine", "group"]
_POLL_S = 0.02
_GENERATES_WITHIN_S = 2.0
_READY = "ready"  # the call by which the harness asks whether a shard generates
# Asked like a rollout asks, so that what an engine does at its first such request is done when it is ready.
_QUESTION = chat_body(_READY, model=MODEL, max_tokens=1, logprobs=True)


class ShardStartError(RuntimeError):
    """A shard did not come up; the message has the last lines of its output."""


class LocalShard:
    """A shard on a leased port of this machine, which it keeps over restarts. `launch(log, output)` starts it once."""

    def __init__(
        self,
        index: int,
        port: int,
        folder: Path,
        launch: Callable[[Path, Path], Awaitable[Group]],
        start_within_s: float,
    ) -> None:
        self.index = index
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"shard-{index}.jsonl"
        self.generation = 0
        self._output = folder / f"shard-{index}.out"
        self._launch = launch
        self._start_within_s = start_within_s
        self._reader = LogReader(self.log, index)
        self._group: Group | None = None
        self._doomed = False  # it was sent a signal that ends it, be it at once or in a second

    def served(self) -> list[Served]:
        """What this shard was asked so far, but for the harness's own question."""
        return [served for served in self._reader.served() if served.call != _READY]

    def in_flight(self) -> int:
        """Generations begun and not ended, as its log says; none once it is dead."""
        return self._reader.in_flight() if self.pid("server") is not None else 0

    def begun(self, calls: str, since: float) -> int:
        """How many generations, of calls whose tag begins with `calls`, have reached it since that moment."""
        return self._reader.begun(calls, since)

    def pid(self, process: ProcessName) -> int | None:
        """The process's id, or the group's; None when it does not live."""
        group = self._group
        if group is None:
            return None
        if process == "engine":
            return group.find(ENGINE_COMM)
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
        elif (engine := group.find(ENGINE_COMM)) is not None:
            os.kill(engine, signum)

    async def kill_node(self) -> None:
        """Lose the machine that it runs on, with all that is there; an already lost one is no error."""
        self._doomed = True
        if self._group is not None:
            await self._group.kill_node()

    async def ensure_ready(self, within_s: float) -> None:
        """Resume it if it is stopped, start it again on its port if it is dead, and wait until it generates.

        Raises ShardStartError when it ends, or does not generate within `within_s` seconds; one that has to be started
        may take as long as its kind does.
        """
        if self._doomed or not self.alive():
            await self._start()
            within_s = max(within_s, self._start_within_s)
        last = time.monotonic() + within_s
        self.signal("group", signal.SIGCONT)
        while not await generates(self.url, within_s=_GENERATES_WITHIN_S):
            group = self._group
            if group is None or group.exit_code() is not None:
                raise ShardStartError(f"shard {self.index} ended while starting:\n{group and group.tail()}")
            if time.monotonic() > last:
                raise ShardStartError(f"shard {self.index} does not serve after {within_s} s:\n{group.tail()}")
            await asyncio.sleep(_POLL_S)

    async def _start(self) -> None:
        self.close()
        self._group = await self._launch(self.log, self._output)
        self._doomed = False
        self.generation += 1

    def close(self) -> None:
        """Kill it and everything it has started."""
        if self._group is not None:
            self._group.close()
            self._group = None


async def generates(url: str, *, within_s: float) -> bool:
    """Whether a shard gives one token: `/health`, and most else, is 200 while the engine is stopped."""
    return await status_of(url, post(url, _QUESTION), within_s=within_s) == HTTPStatus.OK


class LocalFleet(ABC):
    """Shards of one kind on this machine, started together; `folder` gets their logs and their output.

    `pace` is how many times the seconds that the simulated fleet needs for a thing this kind may need.
    """

    pace: ClassVar[float] = 1.0

    def __init__(self, shards: int, *, folder: Path, ready_within_s: float) -> None:
        self._count = shards
        self._folder = folder.absolute()  # who starts a shard may have another working directory
        self._ready_within_s = ready_within_s
        self._stack = ExitStack()
        self.shards: list[LocalShard] = []

    @property
    def versions(self) -> dict[str, str]:
        """Of what runs in an environment of its own."""
        return {}

    async def prepare(self, stack: ExitStack, guard: Guard) -> None:  # noqa: B027 - most kinds need nothing
        """Start what all shards need; `stack` ends it after them."""

    @abstractmethod
    async def launch(self, index: int, port: int, guard: Guard, log: Path, output: Path) -> Group:
        """Start shard `index` on `port`; returns when it has processes, not when it serves."""

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            guard = self._stack.enter_context(Guard())
            await self.prepare(self._stack, guard)
            for index in range(self._count):
                lease = self._stack.enter_context(PortLease())
                launch = partial(self.launch, index, lease.port, guard)
                shard = LocalShard(index, lease.port, self._folder, launch, self._ready_within_s)
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


class SimFleet(LocalFleet):
    """Simulated shards.

    Shards of one fleet share the seed, as replicas share weights: they answer one prompt with the same tokens.
    `token_ms` is what a decoding step takes; `shutdown_timeout_s` is how long a shard lets requests finish after
    SIGTERM, and 0, as in vLLM, ends them as `sigterm` says: "abort", "error" or "silence". `args` come last on each
    shard's command line. The first `prefill` shards are the prefill servers of the others, unless there is no
    `kv_connector`: then all are alike, and take transfer parameters without doing anything with them.
    """

    def __init__(
        self,
        shards: int = 3,
        *,
        folder: Path,
        seed: int = 0,
        model: str = MODEL,
        token_ms: float = 5.0,
        max_model_len: int = 4096,
        shutdown_timeout_s: float = 0.0,
        sigterm: str = "abort",
        prefill: int = 0,
        kv_connector: bool = True,
        ready_within_s: float = 20.0,
        args: Sequence[str] = (),
    ) -> None:
        super().__init__(shards, folder=folder, ready_within_s=ready_within_s)
        self._prefill = prefill if kv_connector else 0
        self._options = (
            *("--seed", str(seed), "--model", model, "--token-ms", str(token_ms)),
            *("--max-model-len", str(max_model_len), "--shutdown-timeout-s", str(shutdown_timeout_s)),
            *("--sigterm", sigterm, "--dev", *args),
        )

    async def launch(self, index: int, port: int, guard: Guard, log: Path, output: Path) -> Group:
        """Start one simulated shard."""
        return ProcessGroup(self.command(index, port, log), guard=guard, output=output)

    def command(self, index: int, port: int, log: Path) -> list[str]:
        """The command line of one."""
        argv = [sys.executable, "-m", "gymproof.chaos.sim", "--port", str(port), "--log", str(log)]
        role = ["--role", "prefill" if index < self._prefill else "decode"] if self._prefill else []
        return [*argv, *role, *self._options]
