"""A deployment of vLLM engines as one TOML file describes it: the settings, and what is impossible.

A replica is a run of neighbouring nodes; a block is the run of one role inside it.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .urls import shown

Role: TypeAlias = Literal["backend", "prefill", "decode"]
Count = Annotated[int, Field(ge=1, strict=True)]
Port = Annotated[int, Field(ge=1, le=65535, strict=True)]


class TopologyError(ValueError):
    """A deployment is impossible; the message says why and what would be right."""


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring nodes of one role. With expert parallelism its engines are one data-parallel group."""

    role: Role
    nodes: int
    port: int  # of rank 0 of each node


class Deployment(BaseModel):
    """What every type of deployment has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")] = "gymproof"
    nodes: tuple[str, ...] = ()
    gpus_per_node: Count
    tensor_parallel: Count = 1
    data_parallel: Count | None = None  # of a group; None: what the GPUs give
    enable_expert_parallel: Annotated[bool, Field(strict=True)] = False
    replicas: Count = 1
    router_port: Port = 8000
    router_admin_port: Port | None = None
    data_parallel_rpc_port: Port = 13345

    router_per_replica: ClassVar[bool] = False

    def blocks(self) -> Sequence[Block]:
        """The blocks of one replica, in node order."""
        raise NotImplementedError

    def more_ports(self) -> Mapping[str, range]:
        """Port ranges that only this type has."""
        return {}

    @property
    def engines_per_node(self) -> int:
        """API servers on a node."""
        return self.gpus_per_node // self.tensor_parallel

    @property
    def nodes_of_a_replica(self) -> int:
        """Nodes from one replica's first to the next one's."""
        return sum(block.nodes for block in self.blocks())

    def group_size(self, block: Block) -> int:
        """Engines that step together: a block's with expert parallelism, else 1."""
        return block.nodes * self.engines_per_node if self.enable_expert_parallel else 1

    @model_validator(mode="after")
    def _divides(self) -> Self:
        gpus, tensor = self.gpus_per_node, self.tensor_parallel
        if tensor > gpus:
            raise ValueError(f"tensor_parallel {tensor} is over the {gpus} GPUs of a node, and an engine has one node")
        if gpus % tensor:
            raise ValueError(f"tensor_parallel {tensor} leaves {gpus % tensor} of {gpus} GPUs of each node unused")
        return self

    @model_validator(mode="after")
    def _data_parallel_fits(self) -> Self:
        if self.data_parallel is None:
            return self
        if self.data_parallel > 1 and not self.enable_expert_parallel:
            raise ValueError(
                f"data_parallel {self.data_parallel} needs enable_expert_parallel: without it every engine is "
                "independent and the router balances them; leave data_parallel out"
            )
        for block in self.blocks():
            size = self.group_size(block)
            if self.data_parallel != size:
                raise ValueError(
                    f"data_parallel {self.data_parallel} is not the {size} engines of a {block.role} group "
                    f"({block.nodes} nodes of {self.engines_per_node}); {size}, or leaving it out, would be right"
                )
        return self

    @model_validator(mode="after")
    def _ports_are_apart(self) -> Self:
        ranges = self.ports()
        for name, ports in ranges.items():
            if ports[-1] > 65535:  # noqa: PLR2004
                raise ValueError(f"{name} {ports[0]} and the {len(ports) - 1} ports after it pass 65535")
        for (one, first), (other, second) in combinations(ranges.items(), 2):
            if first[0] <= second[-1] and second[0] <= first[-1]:
                raise ValueError(f"{one} {_shown_range(first)} and {other} {_shown_range(second)} overlap")
        return self

    def ports(self) -> dict[str, range]:
        """Every port that something listens on, by setting; the same on all nodes."""
        ranges = {"router_port": _from(self.router_port), **self.more_ports()}
        if self.router_admin_port is not None:
            ranges["router_admin_port"] = _from(self.router_admin_port)
        if any(self.group_size(block) > 1 for block in self.blocks()):
            ranges["data_parallel_rpc_port"] = _from(self.data_parallel_rpc_port)
        ports = {f"{block.role}_port": block.port for block in self.blocks()}
        return ranges | {name: _from(port, self.engines_per_node) for name, port in ports.items()}


class SingleNode(Deployment):
    """All engines on one node."""

    type: Literal["single_node"]
    nodes: tuple[str, ...] = ("127.0.0.1",)
    replicas: Literal[1] = 1
    backend_port: Port = 8100

    def blocks(self) -> Sequence[Block]:
        """One node."""
        return (Block("backend", 1, self.backend_port),)


class MultiNode(Deployment):
    """Replicas of some nodes each, all behind one router."""

    type: Literal["multi_node"]
    nodes_per_replica: Count = 1
    backend_port: Port = 8100

    def blocks(self) -> Sequence[Block]:
        """The replica itself."""
        return (Block("backend", self.nodes_per_replica, self.backend_port),)


class Disaggregated(Deployment):
    """Replicas with nodes that prefill and, after them, nodes that decode; a router for each replica."""

    type: Literal["disaggregated"]
    prefill_replicas: Count = 1
    prefill_nodes_per_replica: Count = 1
    decode_replicas: Count = 1
    decode_nodes_per_replica: Count = 1
    prefill_port: Port = 8100
    decode_port: Port = 8200
    decode_sidecar_port: Port = 8300  # llm-d's sidecar in front of each decode engine
    nixl_side_channel_port: Port = 5600  # of local rank 0; vLLM adds the data-parallel rank to what it is told

    router_per_replica: ClassVar[bool] = True

    def blocks(self) -> Sequence[Block]:
        """All prefill blocks, then all decode blocks."""
        prefill = Block("prefill", self.prefill_nodes_per_replica, self.prefill_port)
        decode = Block("decode", self.decode_nodes_per_replica, self.decode_port)
        return (prefill,) * self.prefill_replicas + (decode,) * self.decode_replicas

    def more_ports(self) -> Mapping[str, range]:
        """The sidecars' and the side channels'."""
        side_channels = self.engines_per_node - 1 + max(map(self.group_size, self.blocks()))
        return {
            "decode_sidecar_port": _from(self.decode_sidecar_port, self.engines_per_node),
            "nixl_side_channel_port": _from(self.nixl_side_channel_port, side_channels),
        }


TYPES: Mapping[str, type[Deployment]] = {
    "single_node": SingleNode,
    "multi_node": MultiNode,
    "disaggregated": Disaggregated,
}


def read_topology(path: Path) -> Deployment:
    """The deployment in a TOML file. Raises TopologyError, which names the file."""
    try:
        return make_deployment(tomllib.loads(path.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise TopologyError(f"{path}: {error}") from None


def make_deployment(values: Mapping[str, Any]) -> Deployment:
    """A deployment from keys and values. Raises TopologyError."""
    kind = values.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        raise TopologyError(f"type is {kind!r}; known: {', '.join(TYPES)}")
    try:
        return TYPES[kind].model_validate(values)
    except ValidationError as error:
        raise TopologyError("; ".join(_line(entry, TYPES[kind]) for entry in error.errors())) from None


def _line(entry: Any, kind: type[Deployment]) -> str:
    message = entry["msg"].removeprefix("Value error, ")
    if not entry["loc"]:
        return str(message)
    if entry["type"] == "extra_forbidden":
        message = f"no such setting; there is {', '.join(sorted(kind.model_fields))}"
    where = ".".join(str(part) for part in entry["loc"])
    return f"{where}: {message}" + ("" if entry["type"] == "missing" else f" (got {shown(entry['input'])})")


def _from(port: int, count: int = 1) -> range:
    return range(port, port + count)


def _shown_range(ports: range) -> str:
    return f"{ports[0]}-{ports[-1]}" if len(ports) > 1 else str(ports[0])
