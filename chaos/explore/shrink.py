"""A failing scenario made smaller: one step of a kind at a time, for as long as what is left still fails.

It works on scenarios, not on the chance they came from, so one that was written by hand or made from logs shrinks too,
and each step is itself a valid file. Pure, but for the question whether a scenario fails, which is the caller's.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from ..faults import FAULTS
from ..scenario import Scenario
from ..scenario_toml import tables

Tables = dict[str, Any]
_WIDE = 4  # shards: one more than a client has tries
_SLOW_MS = 20.0  # for one token
_LEAST_ONE = ("rollouts", "turns", "concurrency", "max_tokens")


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool]) -> Scenario:
    """The smallest scenario for which `fails` still held, reached by steps for each of which it held."""
    smaller = next((step for step in _steps(scenario) if fails(step)), None)
    while smaller is not None:
        scenario = smaller
        smaller = next((step for step in _steps(scenario) if fails(step)), None)
    return scenario


def _steps(scenario: Scenario) -> Iterator[Scenario]:
    """Every scenario that is one step smaller, the boldest steps first."""
    whole = tables(scenario)
    for steps in (_fewer_faults, _one_request, _less_load, _fewer_shards, _fewer_struck, _plainer_faults, _defaults):
        for step in steps(whole):
            try:
                yield Scenario.model_validate(step)
            except ValidationError:
                continue


def _fewer_faults(whole: Tables) -> Iterator[Tables]:
    faults = whole["fault"]
    if len(faults) > 1:
        for number in range(len(faults)):
            yield whole | {"fault": faults[:number] + faults[number + 1 :]}


def _fewer_shards(whole: Tables) -> Iterator[Tables]:
    """Without one shard; faults that were on it strike the others, which move up."""
    count = whole["fleet"]["shards"]
    for gone in range(count) if count > 1 else ():
        faults = [_without(fault, gone) for fault in whole["fault"]]
        if all(fault.get("shards") != [] for fault in faults):
            yield whole | {"fleet": whole["fleet"] | {"shards": count - 1}, "fault": faults}


def _without(fault: Tables, gone: int) -> Tables:
    if "shards" not in fault:
        return fault
    left = [shard - (shard > gone) for shard in fault["shards"] if shard != gone]
    return fault | {"shards": left}


def _one_request(whole: Tables) -> Iterator[Tables]:
    """One rollout of one turn, also with more and slower shards, all but one of them struck while it is in flight.

    A stronger fault needs less load to be felt. The smaller steps then take back what is not needed of it.
    """
    load, faults = whole["load"], whole["fault"]
    if load["rollouts"] * load["turns"] == 1:
        return
    least = {"load": load | {"rollouts": 1, "turns": 1, "concurrency": 1}}
    yield whole | least
    if len(faults) == 1 and "shards" in faults[0]:
        fleet = whole["fleet"] | {"shards": _WIDE, "token_ms": _SLOW_MS}
        plain = {key: value for key, value in faults[0].items() if key not in ("at_s", "heal_after_s")}
        for spared in range(_WIDE):
            struck = [shard for shard in range(_WIDE) if shard != spared]
            yield whole | least | {"fleet": fleet, "fault": [plain | {"shards": struck}]}


def _less_load(whole: Tables) -> Iterator[Tables]:
    load = whole["load"]
    for name in _LEAST_ONE:
        for smaller in _below(load[name]):
            yield whole | {"load": load | {name: smaller}}


def _fewer_struck(whole: Tables) -> Iterator[Tables]:
    for number, fault in enumerate(whole["fault"]):
        for gone in fault.get("shards", ()) if len(fault.get("shards", ())) > 1 else ():
            left = [shard for shard in fault["shards"] if shard != gone]
            yield _with_fault(whole, number, fault | {"shards": left})


def _plainer_faults(whole: Tables) -> Iterator[Tables]:
    """Without a time, with a parameter's default, or with a smaller number."""
    for number, fault in enumerate(whole["fault"]):
        fields = FAULTS[fault["kind"]].model_fields
        for name, value in fault.items():
            field = fields.get(name)
            kept = name in ("kind", "shards", "count") or (field is not None and field.is_required())
            if not kept and (field is None or value != field.default):
                yield _with_fault(whole, number, {key: fault[key] for key in fault if key != name})
            if name == "count":
                for smaller in _below(value):
                    yield _with_fault(whole, number, fault | {name: smaller})


def _defaults(whole: Tables) -> Iterator[Tables]:
    """With what is usual; answers that are early are owed only by a router that is told when an engine stands still."""
    kept = {"shards"} if whole["limits"].get("answer_within_s") is None else {"shards", "stall_after_s"}
    for table in ("fleet", "limits"):
        usual: Mapping[str, Any] = Scenario.model_fields[table].default.model_dump(mode="json")
        for name, value in whole[table].items():
            if name not in kept and value != usual[name]:
                yield whole | {table: whole[table] | {name: usual[name]}}


def _with_fault(whole: Tables, number: int, fault: Tables) -> Tables:
    return whole | {"fault": [*whole["fault"][:number], fault, *whole["fault"][number + 1 :]]}


def _below(number: int) -> Iterator[int]:
    """1, the half, one less: from bold to careful."""
    yield from dict.fromkeys(smaller for smaller in (1, number // 2, number - 1) if 0 < smaller < number)
