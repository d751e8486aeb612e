"""A deployment on its nodes: the ranks and URLs that follow.

Every engine has an API server of its own, as prime-rl starts them: rank k of a node listens on its role's port + k and
has GPUs k*tp to k*tp+tp-1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .topology import Deployment, Role, TopologyError
from .urls import BadBackendUrlError, authority, parse_backend

LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True, slots=True)
class Rank:
    """One engine: an API server and the GPUs behind it."""

    node: str
    node_of_role: int  # counts the nodes of this role in the whole deployment, from 0
    local: int  # counts the engines of the node, from 0
    role: Role
    replica: int
    gpus: range
    port: int
    dp_rank: int  # in its data-parallel group; 0 for an engine of its own
    dp_size: int
    dp_address: str  # the node of the group's rank 0

    @property
    def url(self) -> str:
        """Where requests go."""
        return f"{self.admin_url}/v1"

    @property
    def admin_url(self) -> str:
        """Where weight updates, pauses and scrapes go: to this engine and never through a router."""
        return f"http://{authority(self.node, self.port)}"


@dataclass(frozen=True, slots=True)
class Placed:
    """A deployment on its nodes: what the formats render and the router starts from."""

    deployment: Deployment
    ranks: Sequence[Rank]
    routers: Sequence[str]  # nodes, one for each router

    @property
    def router_urls(self) -> Sequence[str]:
        """One URL for the whole deployment, or one for each replica of a disaggregated one."""
        return [f"http://{authority(node, self.deployment.router_port)}/v1" for node in self.routers]

    def urls(self, role: Role) -> tuple[str, ...]:
        """The URLs of one role's ranks."""
        return tuple(rank.url for rank in self.ranks if rank.role == role)

    def router_settings(self) -> dict[str, Any]:
        """The settings of the one router over these ranks. Raises TopologyError where there are several routers."""
        if len(self.routers) > 1:
            raise TopologyError(f"has a router for each of its {len(self.routers)} replicas; --replica chooses one")
        settings: dict[str, Any] = {"port": self.deployment.router_port}
        if self.routers[0] not in LOOPBACK:
            settings["host"] = "0.0.0.0"  # noqa: S104  clients are on other nodes
        if self.deployment.router_admin_port is not None:
            settings["admin_port"] = self.deployment.router_admin_port
        if prefill := self.urls("prefill"):
            return settings | {"prefill_backends": prefill, "backends": self.urls("decode")}
        return settings | {"backends": self.urls("backend")}


def place(deployment: Deployment, nodes: Sequence[str] = (), replica: int | None = None) -> Placed:
    """The deployment, or one replica of it, on `nodes`, else on those in its file. Raises TopologyError."""
    nodes = tuple(nodes) or deployment.nodes
    _check_nodes(deployment, nodes)
    span, ranks = deployment.nodes_of_a_replica, tuple(_ranks(deployment, nodes))
    if replica is not None:
        if not 0 <= replica < deployment.replicas:
            raise TopologyError(f"has no replica {replica}; 0 to {deployment.replicas - 1} would be right")
        return Placed(deployment, [rank for rank in ranks if rank.replica == replica], nodes[replica * span :][:1])
    return Placed(deployment, ranks, nodes[::span] if deployment.router_per_replica else nodes[:1])


def _check_nodes(deployment: Deployment, nodes: Sequence[str]) -> None:
    needed = deployment.replicas * deployment.nodes_of_a_replica
    if len(nodes) != needed:
        raise TopologyError(
            f"needs {needed} nodes ({deployment.replicas} replicas of {deployment.nodes_of_a_replica}) and is given "
            f"{len(nodes)}: {', '.join(nodes) or 'nodes in the file or a --nodelist would be right'}"
        )
    for position, node in enumerate(nodes):
        if node in nodes[:position]:
            raise TopologyError(f"node {node!r} is listed twice")
        try:
            named = parse_backend(f"http://{authority(node, 1)}").host
        except BadBackendUrlError:
            named = None
        if named != node.lower():
            raise TopologyError(f"node {node!r} is neither a host name nor an IP address")


def _ranks(deployment: Deployment, nodes: Sequence[str]) -> Iterator[Rank]:
    start, engines, tensor = 0, deployment.engines_per_node, deployment.tensor_parallel
    seen: dict[Role, int] = {}
    for replica in range(deployment.replicas):
        for block in deployment.blocks():
            size = deployment.group_size(block)
            for index in range(block.nodes * engines):
                offset, local = divmod(index, engines)
                yield Rank(
                    node=nodes[start + offset],
                    node_of_role=seen.get(block.role, 0) + offset,
                    local=local,
                    role=block.role,
                    replica=replica,
                    gpus=range(local * tensor, (local + 1) * tensor),
                    port=block.port + local,
                    dp_rank=index if size > 1 else 0,
                    dp_size=size,
                    dp_address=nodes[start] if size > 1 else nodes[start + offset],
                )
            start += block.nodes
            seen[block.role] = seen.get(block.role, 0) + block.nodes
