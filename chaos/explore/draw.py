"""A seed becomes a scenario: a pure function, so that a seed is all that a failure needs to be found again.

What may be drawn is in the tables here. A shard is struck by one fault at most, since the witness of a second one would
see the first; faults on different shards overlap as they please.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from random import Random
from typing import Any

from ..faults import FAULTS
from ..faults.base import Layer
from ..scenario import Scenario

Draw = Callable[[Random], Mapping[str, Any]]

_HOW = ("fin", "rst")
_FRAMING = ("length", "chunked", "close")
_STATUSES = (204, 307, 429, 500, 502, 503, 504, 520)
_SHARDS = (1, 2, 2, 3, 3, 4)
_MOST_FAULTS = 3
_WEIGHTS = {"status": 4}  # of kinds, where not 1: what statuses mean is several rows of a router's table
_SHORTEST = 8  # tokens of an answer that nothing cuts
# What a watch on the engines' progress takes for death, long before the deadline. Nothing shows it a network that
# swallows bytes, and a paused engine stands still by order.
_NOTICED = frozenset({"kill", "kill_node", "stop", "terminate"})
# Of so many shards at most half are struck: a request that breaks three while another one serves may be refused as
# poison, for all that a router can know.
_LARGE = 4


def _one(name: str, values: Sequence[Any]) -> Draw:
    return lambda rng: {name: rng.choice(values)}


def _cut(rng: Random) -> dict[str, Any]:
    return {"how": rng.choice(_HOW), "framing": rng.choice(_FRAMING)}


def _nothing(_rng: Random) -> dict[str, Any]:
    return {}


# How the parameters of each fault are drawn; those that are not here have none, or keep their defaults.
PARAMETERS: Mapping[str, Draw] = {
    "kill": _one("process", ("server", "engine", "group")),
    "stop": _one("process", ("server", "engine", "group")),
    "pause": _one("mode", ("abort", "wait", "keep")),
    "latency": _one("ms", (150, 300, 800)),
    "stall": _one("stream", ("downstream", "upstream")),
    "reset": _one("after_ms", (0, 50)),
    "cut": _one("after_bytes", (50, 400, 700)),
    "cut_headers": _one("how", _HOW),
    "cut_body": _cut,
    "stall_body": _one("framing", _FRAMING),
    "dribble_body": _one("framing", _FRAMING),
    "status": _one("status", _STATUSES),
    "wrong_body": _one("body", ("empty", "half_json", "html", "error")),
    "idle_close": _one("after_s", (0.0, 0.05)),
    "hang_ups": _one("count", (1, 2, 4, 8)),
    "bad_requests": lambda rng: {"count": rng.choice((1, 3, 6)), "words": 4100},
    "router_restart": _one("signal", ("SIGTERM", "SIGKILL")),
}
NOT_VIRTUAL = frozenset({"router_restart"})  # a router inside the process has no process to end
REAL_KINDS = tuple(FAULTS)
VIRTUAL_KINDS = tuple(kind for kind in FAULTS if kind not in NOT_VIRTUAL)


def draw(seed: int, kinds: Sequence[str] = VIRTUAL_KINDS) -> Scenario:
    """The scenario of a seed, with faults of these kinds."""
    rng = Random(seed)  # noqa: S311 - reproducible, not secret
    fleet = {
        "shards": rng.choice(_SHARDS),
        "token_ms": rng.choice((2.0, 5.0, 20.0)),
        "sigterm": rng.choice(("abort", "error", "silence")),
    }
    load = {
        "rollouts": rng.randint(1, 5),
        "turns": rng.randint(1, 2),
        "concurrency": rng.randint(1, 4),
        "max_tokens": rng.choice((2, 6, 16)),
    }
    faults = _faults(rng, fleet, load, kinds)
    limits = _limits(rng, {fault["kind"] for fault in faults})
    tables = {"fleet": fleet, "load": load, "limits": limits, "fault": faults}
    return Scenario.model_validate({"title": f"Seed {seed}", "why": "Drawn by chance.", **tables})


def _limits(rng: Random, kinds: AbstractSet[str]) -> dict[str, Any]:
    attempts = rng.choice((2, 2, 3))
    if kinds <= _NOTICED and _coin(rng):
        return {"deadline_s": 10.0, "max_attempts": attempts, "stall_after_s": 1.0, "answer_within_s": 1.5 * attempts}
    return {
        "deadline_s": rng.choice((1.0, 1.5, 3.0)),
        "max_attempts": attempts,
        "stall_after_s": rng.choice((1.0, 15.0)),
    }


def _faults(
    rng: Random, fleet: Mapping[str, Any], load: Mapping[str, Any], kinds: Sequence[str]
) -> list[dict[str, Any]]:
    shards = fleet["shards"]
    free = rng.sample(range(shards), shards)[: shards if shards < _LARGE else _LARGE // 2]
    faults: list[dict[str, Any]] = []
    for _ in range(rng.randint(1, _MOST_FAULTS)):
        [kind] = rng.choices(kinds, [_WEIGHTS.get(kind, 1) for kind in kinds])
        if FAULTS[kind].layer is Layer.CLIENT and any(fault["kind"] == kind for fault in faults):
            continue  # the calls of both would have the same names
        fault: dict[str, Any] = {"kind": kind, **PARAMETERS.get(kind, _nothing)(rng)}
        if load["rollouts"] < shards or _coin(rng):  # with so few, some shards stay idle
            fault["at_s"] = round(rng.uniform(0.0, _least_s(fleet, load)), 3)
        if _coin(rng):
            fault["heal_after_s"] = round(rng.uniform(0.1, 3.0), 2)
        if FAULTS[kind].layer not in {Layer.ROUTER, Layer.CLIENT}:
            struck, free = _some(rng, free)
            if not struck:
                continue
            fault["shards"] = sorted(struck)
        faults.append(fault)
    return faults or [{"kind": "kill", "shards": [0]}]


def _least_s(fleet: Mapping[str, Any], load: Mapping[str, Any]) -> float:
    """Seconds that a load lasts at least, but for its last token: a fault of a later moment may come too late."""
    tokens = min(load["max_tokens"], _SHORTEST) * load["turns"] - 1
    return float(tokens * fleet["token_ms"] / 1000)


def _coin(rng: Random) -> bool:
    return rng.random() < 0.5  # noqa: PLR2004


def _some(rng: Random, free: list[int]) -> tuple[list[int], list[int]]:
    """Some of the free shards, and the others."""
    count = rng.randint(1, len(free)) if free else 0
    return free[:count], free[count:]
