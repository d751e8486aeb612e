"""The options of `gym-router serve`: what is a setting in a file is an option of that name."""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from .policies import POLICIES

NODELIST = 'Its nodes, as in "$SLURM_JOB_NODELIST". [nodes in the file]'
REPLICA = "Only this replica, from 0. [all]"

# Type, and help with the default in brackets. The configuration has the defaults: what is not given is None.
OPTIONS: Mapping[str, tuple[Any, str]] = {
    "client": (str, "Who calls: NAME or NAME==VERSION. [nemo-gym]"),
    "backend": (list[str], "Backend URL, with or without /v1. Repeatable."),
    "backends_file": (Path, "One URL a line; re-read when it changes."),
    "topology": (Path, "Deployment whose engines are the backends."),
    "nodelist": (str, NODELIST),
    "replica": (int, REPLICA),
    "prefill_backend": (list[str], "URL of a prefill server. Repeatable."),
    "host": (str, "Address for Gym's traffic. [127.0.0.1]"),
    "port": (int, "Port for Gym's traffic; 0 takes a free one. [8000]"),
    "admin_host": (str, "Address of the admin port. [127.0.0.1]"),
    "admin_port": (int, "Serves /health, /ready, /metrics. [none]"),
    "admin_token_file": (Path, "Token for calls that change state."),
    "backend_timeout_s": (float, "Whole budget of one request. [600, or inside the client's own]"),
    "connect_timeout_s": (float, "Bound of one connect. [5]"),
    "no_healthy_backend_status": (int, "When no shard may serve. [409, or what ends the client's call]"),
    "backend_failure_status": (int, "When another shard may do it. [500]"),
    "policy": (str, f"{', '.join(POLICIES)}. [session]"),
    "session_entries": (int, "Session names remembered. [262144]"),
    "session_ttl_s": (float, "Forget an idle session. [7200]"),
    "kv_capacity_tokens": (int, "KV cache of an engine. [from its metrics]"),
    "max_attempts": (int, "Shards that may see one request. [2]"),
    "no_shard_hold_s": (float, "Wait this long for a shard. [0]"),
    "max_body_mib": (int, "Largest request body. [512]"),
    "max_answer_mib": (int, "Largest answer. [1024]"),
    "max_in_flight": (int, "Requests under way. [what open files carry]"),
    "client_idle_s": (float, "Give up on an idle or stalled client. [75]"),
    "health": (str, "Who decides who serves: self, pushed or off. [self]"),
    "first_push_within_s": (float, "Pushed: how long to wait for it. [10]"),
    "readmit": (str, "What brings a dead shard back: probe or refit. [probe]"),
    "eject_after": (int, "Strikes until a shard is dead. [3]"),
    "probe_interval_s": (float, "Between two probes of a shard. [1]"),
    "probe_timeout_s": (float, "Bound of one health probe. [2]"),
    "stall_after_s": (float, "Without progress it is wedged; 0: off. [15]"),
    "poison_after": (int, "Shards broken before a request is refused. [3]"),
    "event_log": (Path, "Append every attempt and answer, as JSONL."),
    "log_format": (str, "text or json. [text]"),
    "config": (Path, "TOML or YAML file with the same keys."),
}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Have typer give OPTIONS to a command that takes any keyword."""
    command.__annotations__ = {
        name: Annotated[kind | None, typer.Option(help=text)] for name, (kind, text) in OPTIONS.items()
    }
    command.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in command.__annotations__.items()
        ]
    )
    return command
