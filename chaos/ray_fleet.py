"""Simulated shards on the nodes of a Ray cluster, as actors there: whole nodes can be lost, and come back.

This is the harness's end of `ray_cluster.py`, and imports no Ray.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .fleet import SimFleet
from .guard import Guard
from .processes import Group, ProcessGroup, in_session, size

_ANSWERS_WITHIN_S = 120.0  # the first start on a machine reads a lot
_ENDED_WITHIN_S = 5.0
_EXIT_CODE = 1  # whatever it was: only the actor, whose child it is, could tell
_ENV = {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # under `uv run` each worker would be started by `uv run` too
    "RAY_USAGE_STATS_ENABLED": "0",
}


class RayUnavailableError(RuntimeError):
    """Ray is not installed; the message has the command that installs it."""


class RayClusterError(RuntimeError):
    """The Ray cluster did not start, or not do as it was told; the message says why."""


def check_ray() -> None:
    """Raise RayUnavailableError where there is no Ray."""
    if find_spec("ray") is None:
        raise RayUnavailableError(
            "there is no Ray here; `uv sync --extra ray` or `pip install 'gymproof[ray]'` gets it"
        )


class RayCluster:
    """A head node for a driver, which may connect to `address`, and other nodes by number. Wait for `ready` first.

    A context manager; it ends with everything that runs on it.
    """

    address: str

    def __init__(self, output: Path, guard: Guard) -> None:
        self._output = output
        self._guard = guard
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_ANSWERS_WITHIN_S)
        self._lines = self._socket.makefile("rw", encoding="utf-8")
        env = {**os.environ, **_ENV, "RAY_TMPDIR": self._guard.folder("gymproof-ray-")}
        argv = [sys.executable, "-m", "gymproof.chaos.ray_cluster"]
        with theirs:
            self._group = ProcessGroup(argv, guard=self._guard, output=self._output, env=env, stdin=theirs.fileno())
        self.pid = self._group.pid
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # which also ends a question whose answer nobody awaits any more
        with self._turn, suppress(OSError), self._socket:
            self._lines.close()
        with suppress(subprocess.TimeoutExpired):
            self._group.reap(_ENDED_WITHIN_S)
        self._group.close()

    async def ready(self) -> None:
        """Wait for its head node. Raises RayClusterError."""
        self.address = (await self._ask(do="address"))["address"]

    async def start(self, node: int, argv: Sequence[str], output: Path) -> int:
        """Start a shard on a node, and the node if there is none; its process group. Raises RayClusterError.

        Takes some hundredths of a second, with a new node two seconds or more.
        """
        return int((await self._ask(do="start", node=node, argv=argv, output=str(output)))["pid"])

    async def kill(self, node: int) -> None:
        """Lose a node with all that is there; an already lost one is no error. Raises RayClusterError."""
        await self._ask(do="kill", node=node)

    async def _ask(self, **command: Any) -> dict[str, Any]:
        # On a thread, which takes the answer even if whoever asks is cancelled: the next one would get it else.
        return await asyncio.to_thread(self._exchange, json.dumps(command))

    def _exchange(self, command: str) -> dict[str, Any]:
        with self._turn, suppress(OSError):  # after a timeout there is no reading any more
            print(command, file=self._lines, flush=True)
            if line := self._lines.readline():
                answer: dict[str, Any] = json.loads(line)
                if "error" in answer:
                    raise RayClusterError(answer["error"])
                return answer
        raise RayClusterError(f"the Ray cluster has ended, or does not answer:\n{self._group.tail()}")


class ShardOnNode(Group):
    """A shard's process group, which an actor on a node of its own has started."""

    def __init__(
        self, cluster: RayCluster, node: int, pid: int, *, guard: Guard, output: Path, started_at: int
    ) -> None:
        super().__init__(pid, guard=guard, output=output, started_at=started_at)
        self._cluster = cluster
        self._node = node

    def exit_code(self) -> int | None:
        """None while the leader lives; how it ended is not known."""
        return None if in_session(self.pid, self.pid) else _EXIT_CODE

    def reap(self, within_s: float) -> None:
        """Wait for the leader, which was killed. Raises TimeoutError."""
        last = time.monotonic() + within_s
        while self.exit_code() is None:
            if time.monotonic() > last:
                raise TimeoutError(f"process {self.pid} does not end, {within_s} s after SIGKILL")
            time.sleep(0.002)

    async def kill_node(self) -> None:
        """Lose the node, with its raylet and its actor."""
        await self._cluster.kill(self._node)


class RayFleet(SimFleet):
    """Simulated shards, each started by an actor on a Ray node of its own. Needs Ray: see `check_ray`."""

    async def prepare(self, stack: ExitStack, guard: Guard) -> None:
        """Have a cluster."""
        self.cluster = stack.enter_context(RayCluster(self._folder / "ray.out", guard))
        await self.cluster.ready()

    async def launch(self, index: int, port: int, guard: Guard, log: Path, output: Path) -> Group:
        """Start one simulated shard on its node; a lost node is replaced."""
        started_at = size(output)
        pid = await self.cluster.start(index, self.command(index, port, log), output)
        return ShardOnNode(self.cluster, index, pid, guard=guard, output=output, started_at=started_at)
