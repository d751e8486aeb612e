"""`python -m gymproof.chaos.ray_cluster`: a Ray cluster on this machine, with a node for each shard.

Its stdin is a socket. One JSON object a line, each answered by one: {"error": why}, or what is said here.

    {"do": "address"}                                       {"address": "127.0.0.1:1234"}
    {"do": "start", "node": 1, "argv": [...], "output": f}  {"pid": 4242}   a process group, on that node
    {"do": "kill", "node": 1}                               {}              the node is lost, with all that is there

A program of its own, since Ray takes over the signals and exit hooks of its driver, and since one session is what the
guard can kill: it has everything but what the shards' actors have started.
"""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import psutil
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

# The driver's node has room for a router.
_HEAD = {"num_cpus": 2, "include_dashboard": False, "include_log_monitor": False, "dashboard_agent_listen_port": 0}


def kill_group(group: int | None) -> None:
    """SIGKILL to a group that may have ended, or not have been started."""
    if group is not None:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


class ShardActor:
    """One shard of a fleet: the processes of its present life."""

    _process: subprocess.Popen[bytes] | None = None

    def start(self, argv: Sequence[str], output: str) -> int:
        """Start the shard's process group, whose output is appended to a file; its number. The one before ends."""
        if self._process is not None:
            kill_group(self._process.pid)
            self._process.wait()
        with Path(output).open("ab") as file:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        return self._process.pid


@dataclass
class Node:
    """A node of the cluster, its shard's actor, and the process group that this has started."""

    ray_node: Any
    actor: Any
    group: int | None = None

    def processes(self) -> list[psutil.Process]:
        """The node's own and all that they have started, as far as it lives."""
        own = [psutil.Process(process.pid) for _, process in self.ray_node.live_processes()]
        return [*own, *(child for process in own for child in process.children(recursive=True))]


class Nodes:
    """The nodes of the cluster, made at first need."""

    def __init__(self) -> None:
        self._cluster = Cluster(initialize_head=True, head_node_args=_HEAD)
        ray.init(address=self._cluster.address, log_to_driver=False)
        self._nodes: dict[int, Node] = {}

    def address(self) -> dict[str, Any]:
        """Where a driver finds the cluster."""
        return {"address": self._cluster.address}

    def start(self, node: int, argv: Sequence[str], output: str) -> dict[str, Any]:
        """Start a process group on a node, and the node if there is none."""
        if node not in self._nodes:
            self._nodes[node] = self._add()
        there = self._nodes[node]
        there.group = ray.get(there.actor.start.remote(argv, output))
        return {"pid": there.group}

    def kill(self, node: int) -> dict[str, Any]:
        """Lose a node."""
        if lost := self._nodes.pop(node, None):
            doomed = lost.processes()
            kill_group(lost.group)  # an engine whose API server was killed before is nobody's child
            self._cluster.remove_node(lost.ray_node, allow_graceful=False)
            for process in doomed:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        return {}

    def kill_groups(self) -> None:
        """End what is not in this program's session."""
        for node in self._nodes.values():
            kill_group(node.group)

    def _add(self) -> Node:
        ray_node = self._cluster.add_node(num_cpus=1)
        there = NodeAffinitySchedulingStrategy(node_id=ray_node.node_id, soft=False)
        return Node(ray_node, ray.remote(num_cpus=1, scheduling_strategy=there)(ShardActor).remote())


def main() -> None:
    """Obey until the harness closes its end, then leave no shard behind. The harness kills this program's session."""
    with socket.socket(fileno=os.dup(0)) as harness, harness.makefile("rw", encoding="utf-8") as lines:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # not for Ray's processes
        nodes = Nodes()
        try:
            with suppress(BrokenPipeError):  # it does not wait for the last answer
                obey(nodes, lines)
        finally:
            nodes.kill_groups()
        os._exit(0)  # Ray's own farewell takes seconds


def obey(nodes: Nodes, lines: TextIO) -> None:
    """Do as each line says, and answer it."""
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "address": nodes.address,
        "start": nodes.start,
        "kill": nodes.kill,
    }
    for line in lines:
        command = json.loads(line)
        try:
            answer = commands[command.pop("do")](**command)
        except Exception as error:  # noqa: BLE001 - whatever Ray has against it, the harness is to know
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=lines, flush=True)


if __name__ == "__main__":
    main()
