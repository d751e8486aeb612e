"""The router's configuration: one validated value, from arguments, a TOML or YAML file, or both.

A status that NeMo-Gym retries without bound is refused here, before anything listens.
"""

import tomllib
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from gymproof.validators import validate_status

from .health import Readmit
from .policies import POLICIES
from .urls import parse_backend

Seconds = Annotated[float, Field(gt=0)]
Role: TypeAlias = Literal["retry", "give_up"]
Port = Annotated[int, Field(ge=0, le=65535)]


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the key and the value."""


class HealthMode(Enum):
    """Who decides which shards serve."""

    SELF = "self"  # the router: traffic, probes, readmission
    PUSHED = "pushed"  # a controller, by `set_serving_backends`
    OFF = "off"  # nobody: every backend always serves


class RouterConfig(BaseModel):
    """Everything that can be set. Times in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backends: tuple[str, ...] = ()
    backends_file: Path | None = None
    host: str = "127.0.0.1"
    port: Port = 8000
    admin_host: str = "127.0.0.1"
    admin_port: Port | None = None
    admin_token_file: Path | None = None
    backend_timeout_s: Seconds = 600.0
    connect_timeout_s: Seconds = 5.0
    no_healthy_backend_status: int = 409
    backend_failure_status: int = 500
    policy: str = "least_outstanding"
    max_attempts: Annotated[int, Field(ge=1)] = 2
    no_shard_hold_s: Annotated[float, Field(ge=0)] = 0.0
    max_body_mib: Annotated[int, Field(ge=1)] = 512
    max_answer_mib: Annotated[int, Field(ge=1)] = 1024
    max_header_kib: Annotated[int, Field(ge=8)] = 64
    max_in_flight: Annotated[int, Field(ge=1)] | None = None  # None: as many as the open-file limit carries
    client_idle_s: Seconds = 75.0  # longer than the 15 s that Gym's pool keeps an idle connection
    health: HealthMode = HealthMode.SELF
    readmit: Readmit = Readmit.PROBE
    eject_after: Annotated[int, Field(ge=1)] = 3
    probe_interval_s: Seconds = 1.0
    probe_timeout_s: Seconds = 2.0
    poison_after: Annotated[int, Field(ge=2)] = 3
    event_log: Path | None = None
    log_format: str = "text"

    @field_validator("backends")
    @classmethod
    def _readable_backends(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        keys = [parse_backend(url).key for url in urls]
        for position, key in enumerate(keys):
            if key in keys[:position]:
                raise ValueError(f"backend {urls[position]!r} is listed twice")
        return urls

    @field_validator("no_healthy_backend_status", "backend_failure_status")
    @classmethod
    def _safe_status(cls, status: int, info: ValidationInfo) -> int:
        if not 401 <= status <= 599:  # noqa: PLR2004
            raise ValueError("must be an error status from 401 to 599; a 400 can be scored as an overlong rollout")
        role: Role = "retry" if info.field_name == "backend_failure_status" else "give_up"
        validate_status(status, role=role)
        return status

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, name: str) -> str:
        if name not in POLICIES:
            raise ValueError(f"unknown policy {name!r}; known: {', '.join(POLICIES)}")
        return name

    @field_validator("log_format")
    @classmethod
    def _known_format(cls, name: str) -> str:
        if name not in {"text", "json"}:
            raise ValueError(f"unknown log format {name!r}; known: text, json")
        return name

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.connect_timeout_s > self.backend_timeout_s:
            raise ValueError(
                f"connect_timeout_s ({self.connect_timeout_s:g}) is longer than "
                f"backend_timeout_s ({self.backend_timeout_s:g}), which covers it"
            )
        if self.no_shard_hold_s > self.backend_timeout_s:
            raise ValueError(
                f"no_shard_hold_s ({self.no_shard_hold_s:g}) is longer than "
                f"backend_timeout_s ({self.backend_timeout_s:g}), which covers it"
            )
        return self


def make_config(values: dict[str, Any]) -> RouterConfig:
    """A configuration from keys and values. Raises ConfigError."""
    try:
        return RouterConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError("; ".join(_line(entry) for entry in error.errors())) from None


def _line(entry: Any) -> str:
    key = ".".join(str(part) for part in entry["loc"])
    unknown = entry["type"] == "extra_forbidden"
    message = "no such setting" if unknown else entry["msg"].removeprefix("Value error, ")
    value = "" if isinstance(entry["input"], dict) else f" (got {entry['input']!r})"
    return f"{key}: {message}{value}" if key else message


def read_file(path: Path) -> dict[str, Any]:
    """The keys and values of a TOML or YAML file. Raises ConfigError, which names the file."""
    try:
        text = path.read_text("utf-8")
        values = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must be a table of keys and values")
    return values
