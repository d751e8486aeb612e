"""What whoever runs the suite chooses, and a scenario file can't know.

Imports nothing heavy: the pytest plugin reads it at every start of pytest.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# A word with `{backends}` or `{prefill}` becomes one word for each URL, or none; the rest is filled in where it stands.
PLACEHOLDERS = (
    *("port", "backends", "backends_csv", "backends_file", "prefill"),
    *("deadline_s", "max_attempts", "stall_after_s", "client", "folder"),
)
GYM_ROUTER = (
    "gym-router serve --client {client} --host 127.0.0.1 --port {port} --backends-file {backends_file} "
    "--backend-timeout-s {deadline_s} --connect-timeout-s 0.5 --max-attempts {max_attempts} "
    "--stall-after-s {stall_after_s} --readmit probe --probe-interval-s 0.2 --event-log {folder}/router-events.jsonl "
    "--prefill-backend={prefill}"
)

# Whose contract a client keeps that has none of its own name.
_KEPT: Mapping[str, str] = {"gym-like": "nemo-gym", "nemo-gym-bounded": "nemo-gym", "openai-bounded": "openai"}


@dataclass(frozen=True, slots=True)
class Setup:
    """Where records go, what the backends are, who calls, and which router is judged.

    `shards` is how many there are whatever a scenario says; `vllm_python`, `model` and `vllm_args` are for real ones.
    """

    out: Path
    fleet: str = "sim"
    client: str = "auto"
    router_cmd: str = GYM_ROUTER
    seed: int = 0
    toxiproxy_url: str | None = None
    shards: int | None = None
    vllm_python: str | None = None
    model: str | None = None
    vllm_args: tuple[str, ...] = ()
    start_within_s: float = 20.0  # for the router
    keep_router: bool = False  # from a case to the next one


def resolve_client(name: str) -> str:
    """Turn "auto" into the real client where it is installed, else into the equal one."""
    if name != "auto":
        return name
    return "nemo-gym" if importlib.util.find_spec("nemo_gym") else "gym-like"


def contract_client(client: str) -> str:
    """The client whose contract judges what `client` is answered."""
    return _KEPT.get(client, client)


def without_prefill(fleet: str, router_cmd: str) -> str:
    """Why no scenario with prefill servers can be run on such a fleet, with such a router; "" if they can."""
    if fleet == "vllm":
        return "prefill servers need NIXL, which does not run on a CPU; the fleets sim and ray have simulated ones"
    return "" if "{prefill}" in router_cmd else "the router command has no {prefill}: it is told of no prefill server"
