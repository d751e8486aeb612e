"""What others read of a deployment: URLs, shell variables, llm-d's endpoints, Prometheus targets, ranks to start."""

import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any

import orjson
import yaml

from .placement import Placed, Rank
from .topology import Disaggregated, TopologyError
from .urls import authority


def urls(placed: Placed) -> str:
    """A URL a line, which a --backends-file may be; routers and admin URLs are comments."""
    lines = [f"# router {url}" for url in placed.router_urls]
    lines += [f"{rank.url}  # {rank.role}, replica {rank.replica}, admin {rank.admin_url}" for rank in placed.ranks]
    return "\n".join([*lines, ""])


def env(placed: Placed) -> str:
    """Shell assignments for `eval`; a list is separated by spaces."""
    values: dict[str, Sequence[str]] = {
        "ROUTER_URLS": placed.router_urls,
        "ROUTER_NODES": placed.routers,
        "WORKER_URLS": [rank.url for rank in placed.ranks],
        "PREFILL_URLS": placed.urls("prefill"),
        "DECODE_URLS": placed.urls("decode"),
        "ADMIN_URLS": [rank.admin_url for rank in placed.ranks],
    }
    return "".join(f"{name}={shlex.quote(' '.join(items))}\n" for name, items in values.items())


def llm_d(placed: Placed, resolve: Callable[[str], str]) -> str:
    """llm-d's file discovery: IPv4 literals, the port a string, prefill first; decode is reached by its sidecar."""
    deployment = placed.deployment
    sidecar = deployment.decode_sidecar_port if isinstance(deployment, Disaggregated) else 0
    addresses = {rank.node: resolve(rank.node) for rank in placed.ranks}
    ranks = sorted(placed.ranks, key=lambda rank: rank.role != "prefill")
    endpoints = [
        {
            "name": f"{rank.role}-{rank.node_of_role}-rank-{rank.local}",
            "namespace": "default",
            "address": addresses[rank.node],
            "port": str(sidecar + rank.local if rank.role == "decode" else rank.port),
            "labels": {"llm-d.ai/pool": deployment.name} | _role_label(rank),
        }
        for rank in ranks
    ]
    return yaml.safe_dump({"endpoints": endpoints}, sort_keys=False)


def _role_label(rank: Rank) -> dict[str, str]:
    return {} if rank.role == "backend" else {"llm-d.ai/role": rank.role}


def prometheus(placed: Placed) -> str:
    """Targets for Prometheus' file_sd_configs: every engine, and every router that has an admin port."""
    targets = [_target(rank.node, rank.port, placed, rank.role, str(rank.replica)) for rank in placed.ranks]
    if (port := placed.deployment.router_admin_port) is not None:
        targets += [_target(node, port, placed, "router") for node in placed.routers]
    return orjson.dumps(targets, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _target(node: str, port: int, placed: Placed, role: str, replica: str = "") -> dict[str, Any]:
    labels = {"deployment": placed.deployment.name, "role": role} | ({"replica": replica} if replica else {})
    return {"targets": [authority(node, port)], "labels": labels}


RANKS_HEAD = "node role replica local port gpus dp_rank dp_size dp_address dp_rpc_port side_channel_port"


def ranks(placed: Placed) -> str:
    """A line an engine for the script that starts them, under a heading; fields are separated by spaces."""
    deployment = placed.deployment
    side = deployment.nixl_side_channel_port if isinstance(deployment, Disaggregated) else 0
    rpc = deployment.data_parallel_rpc_port
    lines = [
        f"{rank.node} {rank.role} {rank.replica} {rank.local} {rank.port} {','.join(map(str, rank.gpus))} "
        f"{rank.dp_rank} {rank.dp_size} {rank.dp_address} {rpc} {side + rank.local if side else '-'}"
        for rank in placed.ranks
    ]
    return "\n".join([f"# {RANKS_HEAD}", *lines, ""])


def ipv4_of(node: str) -> str:
    """The first IPv4 address of a node. Raises TopologyError."""
    try:
        found = socket.getaddrinfo(node, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise TopologyError(f"node {node!r} has no IPv4 address, and llm-d reads nothing else: {error}") from None
    return str(IPv4Address(found[0][4][0]))


FORMATS: Mapping[str, Callable[[Placed], str]] = {
    "urls": urls,
    "env": env,
    "llm-d": lambda placed: llm_d(placed, ipv4_of),
    "prometheus": prometheus,
    "ranks": ranks,
}


def render(placed: Placed, name: str) -> str:
    """The deployment in one of FORMATS. Raises TopologyError."""
    if name not in FORMATS:
        raise TopologyError(f"unknown format {name!r}; known: {', '.join(FORMATS)}")
    return FORMATS[name](placed)
