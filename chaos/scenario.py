"""A scenario file: one story, checked in full before anything starts.

Only what a TOML file says belongs here, and the cases that come out of it. A file may be read with `load`, and its
`cases` are what is run: one for each scope, so that "one shard of three" and "all of them" tell the same story.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from .checkers import CHECKERS
from .clients import CLIENTS
from .faults import FAULTS
from .faults.base import Fault, Layer

SUFFIX = ".chaos.toml"
_TIMING = ("at_s", "when", "heal_after_s", "heal_when", "shards")


class ScenarioError(ValueError):
    """A scenario file cannot be run: the message names the file, the key and what would be right."""


class Scope(StrEnum):
    """How many shards a fault strikes."""

    ONE = "one"
    ALL = "all"


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FleetTable(_Table):
    """The backends: how many, and for simulated ones how fast they generate and what SIGTERM does to their work."""

    shards: int = Field(default=3, ge=1, le=64)
    prefill: int = Field(default=0, ge=0, description="the first so many shards are prefill servers of the others")
    kv_connector: bool = True  # without one, prefill servers answer no transfer parameters
    max_model_len: PositiveInt = 4096
    token_ms: PositiveFloat = 5.0
    sigterm: Literal["abort", "error", "silence"] = "abort"

    def real(self) -> Self:
        """The same for servers that do not let themselves be told such things."""
        return type(self)(shards=self.shards, prefill=self.prefill, max_model_len=self.max_model_len)


def _known_client(name: str) -> str:
    if name not in ("auto", *CLIENTS):
        raise ValueError(f"unknown client {name!r}; known: auto, {', '.join(CLIENTS)}")
    return name


class LoadTable(_Table):
    """The rollouts that are under way while the faults act."""

    rollouts: PositiveInt = 8
    turns: PositiveInt = 2
    concurrency: PositiveInt = 4
    max_tokens: PositiveInt = 24
    client: Annotated[str, AfterValidator(_known_client)] = "auto"


class LimitsTable(_Table):
    """What the router is told (`deadline_s`, `max_attempts`, `stall_after_s`), and what is expected of it.

    `answer_within_s` asks for answers earlier than the deadline that the router is told.
    """

    deadline_s: PositiveFloat = 1.5
    stall_after_s: NonNegativeFloat = 15.0
    answer_within_s: PositiveFloat | None = None
    max_attempts: PositiveInt = 2
    grace_s: PositiveFloat = 1.0
    cancel_within_s: PositiveFloat = 1.5
    recover_within_s: PositiveFloat = 15.0

    @property
    def give_up_s(self) -> float:
        """How long a load may last: three tries of a call at the deadline, twice over, and room for a slow machine."""
        return 2 * 3 * (self.deadline_s + self.grace_s + 0.5)

    def paced(self, pace: float) -> Self:
        """The same limits for a fleet that is `pace` times as slow."""
        seconds = {name: pace * value for name, value in self if name.endswith("_s") and value is not None}
        return self.model_copy(update=seconds)


class Moment(_Table):
    """An event of the load: its `requests`-th generation has begun, on `shard` or, without one, anywhere."""

    requests: PositiveInt
    shard: int | None = Field(default=None, ge=0)

    def __str__(self) -> str:
        where = "the fleet" if self.shard is None else f"shard {self.shard}"
        return f"{where} has seen request {self.requests} of the load"


class FaultPlan(_Table):
    """When a fault strikes, which shards, and when it is healed.

    `at_s` counts from the start of the load, `when` names an event of it, which a slower machine meets too; without
    either the fault waits until its target has work in flight. Without `heal_after_s` and `heal_when` it stays until
    the load has ended.
    """

    fault: Fault
    kind: str
    shards: tuple[int, ...] | None = Field(default=None, min_length=1)
    at_s: float | None = Field(default=None, ge=0)
    when: Moment | None = None
    heal_after_s: PositiveFloat | None = None
    heal_when: Moment | None = None

    @model_validator(mode="after")
    def _one_clock(self) -> Self:
        for seconds, event in (("at_s", "when"), ("heal_after_s", "heal_when")):
            if getattr(self, seconds) is not None and getattr(self, event) is not None:
                raise ValueError(f"{seconds} and {event}: only one of them")
        return self


def _known_checks(names: Any) -> Any:
    unknown = sorted(set(names) - set(CHECKERS)) if isinstance(names, list) else []
    if unknown:
        raise ValueError(f"unknown check {unknown[0]!r}; known: {', '.join(CHECKERS)}")
    return names


def _plan(table: Any) -> Any:
    """Split a `[[fault]]` table into its timing and the parameters of its kind."""
    if not isinstance(table, dict):
        return table
    kind = table.get("kind")
    if kind not in FAULTS:
        raise ValueError(f"unknown fault kind {kind!r}; known: {', '.join(sorted(FAULTS))}")
    parameters = {key: value for key, value in table.items() if key not in (*_TIMING, "kind")}
    timing = {key: table[key] for key in _TIMING if key in table}
    try:
        return {"kind": kind, "fault": FAULTS[kind](**parameters), **timing}
    except ValidationError as error:
        raise ValueError(f"fault {kind!r}: {_explain(error)}") from error


def _tables(faults: Any) -> Any:
    if isinstance(faults, dict):
        raise ValueError("one table; a fault is a [[fault]], with two brackets")  # noqa: TRY004 - pydantic's convention
    return faults


class Scenario(_Table):
    """A whole scenario file. A fault on shards is run once for each scope."""

    title: str
    why: str
    scopes: tuple[Scope, ...] = Field(default=(Scope.ONE, Scope.ALL), min_length=1)
    fleet: FleetTable = FleetTable()
    load: LoadTable = LoadTable()
    limits: LimitsTable = LimitsTable()
    fault: Annotated[tuple[Annotated[FaultPlan, BeforeValidator(_plan)], ...], BeforeValidator(_tables)]
    checks: Annotated[tuple[str, ...], BeforeValidator(_known_checks)] = Field(default=tuple(CHECKERS), min_length=1)


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario at one scope: what a run runs and a test tests."""

    name: str
    scenario: Scenario
    scope: Scope
    source: Path
    pace: float = 1.0  # its limits are for a fleet that is this many times as slow as the simulated one

    @property
    def hops(self) -> frozenset[Layer]:
        """What has to stand in front of each shard, as its faults want it."""
        return frozenset(plan.fault.layer for plan in self.scenario.fault) & {Layer.TOXIC, Layer.SCRIPT}

    def targets(self, plan: FaultPlan) -> tuple[int, ...]:
        """The shards that a fault of this case strikes; none for one on the router or on the clients."""
        if plan.fault.layer in (Layer.ROUTER, Layer.CLIENT):
            return ()
        if plan.shards is not None:
            return plan.shards
        shards = range(self.scenario.fleet.shards)
        return tuple(shards) if self.scope is Scope.ALL else (shards[len(shards) // 2],)

    def fitted(self, fleet: FleetTable, pace: float) -> Self:
        """The case on another fleet, one that is `pace` times as slow. Raises ScenarioError for a shard beyond it.

        Its answers get longer too, so that the load still lasts when a fault has got ready to meet it. What was fitted
        to such a fleet before stays as it is.
        """
        _check_shards(self.scenario, fleet, self.source)
        slower = pace / self.pace
        limits, load = self.scenario.limits.paced(slower), self.scenario.load
        load = load.model_copy(update={"max_tokens": max(1, round(slower * load.max_tokens))})
        scenario = self.scenario.model_copy(update={"fleet": fleet, "limits": limits, "load": load})
        return replace(self, scenario=scenario, pace=pace)


def load(path: Path) -> Scenario:
    """Read and check one file. Raises ScenarioError."""
    try:
        scenario = Scenario(**tomllib.loads(path.read_text()))
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: not TOML: {error}") from error
    except ValidationError as error:
        raise ScenarioError(f"{path}: {_explain(error)}") from error
    _check_shards(scenario, scenario.fleet, path)
    return scenario


def _check_shards(scenario: Scenario, fleet: FleetTable, path: Path) -> None:
    if fleet.prefill >= fleet.shards:
        raise ScenarioError(f"{path}: fleet.prefill: {fleet.prefill} of {fleet.shards} shards leave none for decode")
    for number, plan in enumerate(scenario.fault):
        named = [("shards", shard) for shard in plan.shards or ()]
        moments = (("when", plan.when), ("heal_when", plan.heal_when))
        named += [(key, moment.shard) for key, moment in moments if moment and moment.shard is not None]
        for key, shard in named:
            if not 0 <= shard < fleet.shards:
                raise ScenarioError(
                    f"{path}: fault.{number}.{key}: no shard {shard} in a fleet of {fleet.shards} "
                    f"(0 to {fleet.shards - 1})"
                )


def cases(path: Path) -> list[Case]:
    """The cases of one file: one for each scope, or one in all where no fault strikes by scope. Raises ScenarioError.

    Only a record may be of a run without a fault, which `load` reads too.
    """
    scenario = load(path)
    if not scenario.fault:
        raise ScenarioError(f"{path}: fault: there is none; known: {', '.join(sorted(FAULTS))}")
    name = path.name.removesuffix(SUFFIX)
    if all(plan.shards is not None or plan.fault.layer in (Layer.ROUTER, Layer.CLIENT) for plan in scenario.fault):
        return [Case(name, scenario, Scope.ONE, path)]
    return [Case(f"{name}-{scope}", scenario, scope, path) for scope in scenario.scopes]


def shipped() -> list[Path]:
    """The scenario files that come with the suite, by name."""
    return sorted(Path(str(files("gymproof.chaos") / "scenarios")).glob(f"*{SUFFIX}"))


def find(names: Sequence[str]) -> list[Path]:
    """Turn file paths and names of shipped scenarios into paths. Raises ScenarioError with the names that exist."""
    known = {path.name.removesuffix(SUFFIX): path for path in shipped()}
    paths = [Path(name) if Path(name).exists() else known.get(name.removesuffix(SUFFIX)) for name in names]
    for name, path in zip(names, paths, strict=True):
        if path is None:
            raise ScenarioError(f"{name}: no such file, and no shipped scenario; shipped: {', '.join(known)}")
    return list(dict.fromkeys(path for path in paths if path is not None))


def _explain(error: ValidationError) -> str:
    """Every mistake in one line each: the key, what was there, and why it is wrong."""
    return "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'scenario'}: {item['msg'].removeprefix('Value error, ')}"
        + (f" (got {item['input']!r})" if item["type"] not in ("missing", "value_error") else "")
        for item in error.errors(include_url=False)
    )
