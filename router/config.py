"""The router's configuration: one validated value, from arguments, a TOML or YAML file, or both.

A status that the configured client retries without bound, or takes otherwise than it is meant, is refused here,
before anything listens.
"""

import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from yaml import YAMLError

from gymproof.validators import CLIENT, Contract, contract_of, right_status, validate_status

from .health import Readmit
from .policies import POLICIES
from .unique_yaml import load_yaml
from .urls import parse_backend, shown


def _finite(seconds: float) -> float:
    if not isfinite(seconds):
        raise ValueError("is no deadline at all; a finite number of seconds would be right")
    return seconds


Seconds = Annotated[float, Field(gt=0), AfterValidator(_finite)]
SecondsOrNone = Annotated[float, Field(ge=0), AfterValidator(_finite)]  # 0: not at all
Role: TypeAlias = Literal["retry", "give_up"]
Port = Annotated[int, Field(ge=0, le=65535)]
BACKEND_TIMEOUT_S = 600.0
INSIDE = 0.9  # of a client's own timeout
CONNECT_TIMEOUT_S = 5.0


class ConfigError(ValueError):
    """The configuration cannot be used. The message says why and what would be right; `key` is the setting, if one."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


def _default_connect_timeout(before: dict[str, Any]) -> float:
    return float(min(CONNECT_TIMEOUT_S, before.get("backend_timeout_s", BACKEND_TIMEOUT_S)))


def _contract(before: dict[str, Any]) -> Contract:
    """Of the client that was configured; of the default one while that is what is wrong."""
    return contract_of(before.get("client", CLIENT))


def _default_backend_timeout(before: dict[str, Any]) -> float:
    """A client that ends the request itself has to be answered before it does."""
    patience = _contract(before).timing.silence_s
    return BACKEND_TIMEOUT_S if patience is None else min(BACKEND_TIMEOUT_S, INSIDE * patience)


def _default_no_healthy_backend_status(before: dict[str, Any]) -> int:
    return right_status("give_up", _contract(before))


def _default_backend_failure_status(before: dict[str, Any]) -> int:
    return right_status("retry", _contract(before))


class HealthMode(Enum):
    """Who decides which shards serve."""

    SELF = "self"  # the router: traffic, probes, readmission
    PUSHED = "pushed"  # a controller, by `set_serving_backends`
    OFF = "off"  # nobody: every backend always serves


class RouterConfig(BaseModel):
    """Everything that can be set. Times in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client: str = CLIENT  # whose contract the answers keep: NAME, or NAME==VERSION
    backends: tuple[str, ...] = ()
    backends_file: Path | None = None
    prefill_backends: tuple[str, ...] = ()  # with any, the backends are the decode servers
    host: str = "127.0.0.1"
    port: Port = 8000
    admin_host: str = "127.0.0.1"
    admin_port: Port | None = None
    admin_token_file: Path | None = None
    backend_timeout_s: Seconds = Field(default_factory=_default_backend_timeout)
    connect_timeout_s: Seconds = Field(default_factory=_default_connect_timeout)
    no_healthy_backend_status: int = Field(default_factory=_default_no_healthy_backend_status)
    backend_failure_status: int = Field(default_factory=_default_backend_failure_status)
    policy: str = "session"
    session_entries: Annotated[int, Field(ge=1)] = 262_144  # names of sessions remembered
    session_ttl_s: Seconds = 7200.0  # longer than a rollout's longest tool call
    kv_capacity_tokens: Annotated[int, Field(ge=1)] | None = None  # of each engine; None: what its metrics say
    max_attempts: Annotated[int, Field(ge=1)] = 2
    no_shard_hold_s: SecondsOrNone = 0.0
    max_body_mib: Annotated[int, Field(ge=1)] = 512
    max_answer_mib: Annotated[int, Field(ge=1)] = 1024
    max_header_kib: Annotated[int, Field(ge=8)] = 64
    max_in_flight: Annotated[int, Field(ge=1)] | None = None  # None: as many as the open-file limit carries
    client_idle_s: Seconds = 75.0  # longer than the 15 s that Gym's pool keeps an idle connection
    health: HealthMode = HealthMode.SELF
    first_push_within_s: SecondsOrNone = 10.0  # of a controller's, from the start
    readmit: Readmit = Readmit.PROBE
    eject_after: Annotated[int, Field(ge=1)] = 3
    probe_interval_s: Seconds = 1.0
    probe_timeout_s: Seconds = 2.0
    stall_after_s: SecondsOrNone = 15.0  # more than the longest step and weight update; 0: no watch
    poison_after: Annotated[int, Field(ge=2)] = 3
    event_log: Path | None = None
    log_format: str = "text"

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean(cls, value: Any) -> Any:
        """Nothing here is one; read as a number, `port = true` would be port 1."""
        if isinstance(value, bool):
            raise ValueError("must not be true or false; in YAML, a word such as off has to be in quotes")  # noqa: TRY004  pydantic's
        return value

    @field_validator("host", "admin_host")
    @classmethod
    def _without_brackets(cls, host: str) -> str:
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    @field_validator("admin_token_file")
    @classmethod
    def _guards_something(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is not None and info.data.get("admin_port", path) is None:
            raise ValueError("guards the admin port, and there is none; an admin port beside it would be right")
        return path

    @field_validator("backends", "prefill_backends")
    @classmethod
    def _readable_backends(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        keys = [parse_backend(url).key for url in urls]
        for position, key in enumerate(keys):
            if key in keys[:position]:
                raise ValueError(f"backend {urls[position]!r} is listed twice")
        return urls

    @field_validator("prefill_backends")
    @classmethod
    def _of_one_role(cls, urls: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        decode = {parse_backend(url).key for url in info.data.get("backends", ())}
        for url in urls:
            if parse_backend(url).key in decode:
                raise ValueError(f"{url!r} is a backend, which decodes; a server of one role would be right")
        return urls

    @field_validator("health")
    @classmethod
    def _nobody_pushes_prefill(cls, mode: HealthMode, info: ValidationInfo) -> HealthMode:
        if mode is HealthMode.PUSHED and info.data.get("prefill_backends"):
            raise ValueError("does not go with prefill_backends, which no controller pushes; self would be right")
        return mode

    @field_validator("no_healthy_backend_status", "backend_failure_status")
    @classmethod
    def _safe_status(cls, status: int, info: ValidationInfo) -> int:
        if not 401 <= status <= 599:  # noqa: PLR2004
            raise ValueError("must be an error status from 401 to 599; a 400 can be scored as an overlong rollout")
        role: Role = "retry" if info.field_name == "backend_failure_status" else "give_up"
        validate_status(status, role=role, contract=_contract(info.data))
        return status

    @field_validator("client")
    @classmethod
    def _known_client(cls, client: str) -> str:
        try:
            contract_of(client)
        except LookupError as error:
            raise ValueError(str(error)) from None
        return client

    @field_validator("backend_timeout_s")
    @classmethod
    def _before_the_client_leaves(cls, seconds: float, info: ValidationInfo) -> float:
        contract = _contract(info.data)
        patience = contract.timing.silence_s
        if patience is not None and seconds >= patience:
            raise ValueError(f"{contract.client} ends the request itself after {patience:g} s: less would be right")
        return seconds

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

    @field_validator("connect_timeout_s", "no_shard_hold_s")
    @classmethod
    def _inside_the_budget(cls, seconds: float, info: ValidationInfo) -> float:
        budget = info.data.get("backend_timeout_s", seconds)
        if seconds > budget:
            raise ValueError(f"is longer than backend_timeout_s, which covers it: at most {budget:g} would be right")
        return seconds


def make_config(values: dict[str, Any], name: Callable[[str], str] = str) -> RouterConfig:
    """A configuration from keys and values. Raises ConfigError, in which `name(key)` says where a value came from."""
    try:
        return RouterConfig.model_validate(values)
    except ValidationError as error:
        # A default that depends on a bad value says no more than the value's own line.
        told = (entry for entry in error.errors() if entry["type"] != "default_factory_not_called")
        raise ConfigError("; ".join(_line(entry, name) for entry in told)) from None


def _line(entry: Any, name: Callable[[str], str]) -> str:
    key, *inside = (str(part) for part in entry["loc"])
    message = entry["msg"].removeprefix("Value error, ")
    if entry["type"] == "extra_forbidden":
        known = get_close_matches(key.replace("-", "_"), RouterConfig.model_fields, n=1)
        message = f"no such setting; there is {', '.join(known or sorted(RouterConfig.model_fields))}"
    return f"{'.'.join([name(key), *inside])}: {message} (got {shown(entry['input'])})"


LOADERS: Mapping[str, Callable[[str], Any]] = {".toml": tomllib.loads, ".yaml": load_yaml, ".yml": load_yaml}


def read_file(path: Path) -> dict[str, Any]:
    """The keys and values of a TOML or YAML file. Raises ConfigError, which names the file."""
    if path.suffix not in LOADERS:
        raise ConfigError(f"{path}: must end in one of {', '.join(LOADERS)}, which say how it is read", "config")
    try:
        values = LOADERS[path.suffix](path.read_text("utf-8"))
    except (OSError, ValueError, YAMLError) as error:
        raise ConfigError(f"{path}: {error}", "config") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must be a table of keys and values", "config")
    return values
