"""From what logs say to a scenario that tells the same story: pure, and open about what it had to assume."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .logs.base import Harm, Reading, Sign
from .scenario import Scenario

_DEADLINE_S = 5.0  # a laptop need not wait for the minutes of a training run
_USUAL_SHARDS = 3
_GYM = "NeMo-Gym console"
# Who knows best what happened to a shard: the server itself, then its metrics, then those who called it.
_TRUST = ("vLLM server", "Prometheus range", "gym-router events")


class NothingFoundError(ValueError):
    """No log says that anything went wrong with a shard."""


@dataclass(frozen=True, slots=True)
class Incident:
    """A scenario, and how it was come by."""

    scenario: Scenario
    inferred: tuple[str, ...]  # each with its line
    unknown: tuple[str, ...]


def infer(readings: Sequence[Reading], title: str) -> Incident:
    """Build the scenario. Raises NothingFoundError."""
    shards = _fleet(readings)
    harms = _first_harms(readings)
    unknown = [f"{reading.file}: {gap}" for reading in readings for gap in reading.gaps]
    if not shards:
        unknown.append(f"how many shards there were: {_USUAL_SHARDS} are assumed")
    if not harms:
        harms = _seen_by_clients(readings)
        unknown.append("what happened to the shards: all of them are made to answer as the clients saw")
    unknown += _left_out(readings, harms)
    table = {shard: index for index, shard in enumerate(shards)}
    faults = _faults(harms, table)
    limits, shortened = _limits(readings)
    unknown += shortened
    inferred = [f"{sign.line}: {sign.says} -> {_name(sign.harm)}" for sign in harms.values() if sign.harm]
    inferred += [
        f"{sign.line}: {sign.says}" for reading in readings if reading.format == _GYM for sign in reading.signs
    ]
    scenario = Scenario.model_validate(
        {
            "title": title,
            "why": "Built from logs by gym-chaos from-log.",
            "scopes": ["all"],
            "fleet": {"shards": len(shards) or _USUAL_SHARDS},
            "limits": limits,
            "fault": faults,
        }
    )
    return Incident(scenario, tuple(dict.fromkeys(inferred)), tuple(unknown))


def _fleet(readings: Sequence[Reading]) -> list[str]:
    """Every shard that a log of the fleet names, in their order."""
    return list(dict.fromkeys(shard for reading in readings for shard in reading.shards))


def _first_harms(readings: Sequence[Reading]) -> dict[str, Sign]:
    """What first happened to each shard, as the one who knows best says."""
    found: dict[str, Sign] = {}
    for name in _TRUST:
        here: dict[str, Sign] = {}
        for reading in readings:
            for sign in reading.signs if reading.format == name else ():
                if sign.harm is not None and sign.shard is not None:
                    here.setdefault(sign.shard, sign)
        found = {**here, **found}
    return found


def _left_out(readings: Sequence[Reading], harms: Mapping[str, Sign]) -> list[str]:
    """What else happened to the shards: a scenario has the first of each."""
    used = {sign.line for sign in harms.values()}
    later = [sign for reading in readings if reading.format in _TRUST for sign in reading.signs if sign.harm]
    rest = [sign.line for sign in later if sign.line not in used]
    return [f"{len(rest)} more signs on the same shards are not in the scenario, from {rest[0]} on"] if rest else []


def _seen_by_clients(readings: Sequence[Reading]) -> dict[str, Sign]:
    signs = [sign for reading in readings if reading.format == _GYM for sign in reading.signs]
    if not signs:
        raise NothingFoundError("no log says that anything went wrong with a shard")
    return {"": signs[-1]}


def _faults(harms: Mapping[str, Sign], table: Mapping[str, int]) -> list[dict[str, object]]:
    """One fault for each kind of harm, on the shards that it hit; those after the first at their distance from it."""
    groups: dict[Harm, list[Sign]] = {}
    for sign in sorted(harms.values(), key=lambda sign: sign.at or 0.0):
        if sign.harm is not None:
            groups.setdefault(sign.harm, []).append(sign)
    faults: list[dict[str, object]] = []
    first = min((sign.at for sign in harms.values() if sign.at is not None), default=None)
    for (kind, parameters), signs in groups.items():
        fault: dict[str, object] = {"kind": kind, **dict(parameters)}
        hit = sorted({table[sign.shard] for sign in signs if sign.shard is not None and sign.shard in table})
        if len(hit) < len(table):
            fault["shards"] = hit
        if faults and first is not None and signs[0].at is not None:
            fault["at_s"] = min(round(signs[0].at - first, 1), _DEADLINE_S)
        faults.append(fault)
    return faults


def _limits(readings: Sequence[Reading]) -> tuple[dict[str, float], list[str]]:
    """The router's limits, if a log has them, the deadline shortened to what a laptop should wait for."""
    limits = {key: value for reading in readings for key, value in reading.limits.items()}
    deadline = limits.get("deadline_s", 0.0)
    if deadline <= _DEADLINE_S:
        return limits, []
    return {**limits, "deadline_s": _DEADLINE_S}, [f"the deadline was {deadline:g} s; {_DEADLINE_S:g} s are used"]


def _name(harm: Harm | None) -> str:
    kind, parameters = harm or ("", ())
    return " ".join([kind, *(f"{name}={value}" for name, value in parameters)])
