"""The fault cases of a conformance run: what the shipped scenarios do, refitted so that any router is soon judged.

Two shards, answers of a tenth of a second, a deadline of 2 s, and a load that is wide enough for each shard to be
met under any balancing. The shard that is struck is the first one: a router that takes the first of those that are
equally idle meets it with every request that comes alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gymproof.validators import Handling, load_contract

from ..faults.base import Layer, Symptom
from ..scenario import SUFFIX, Case, FaultPlan, FleetTable, LimitsTable, LoadTable, Scenario, Scope, load, shipped
from .findings import Group

SHARDS = 2
LOAD = LoadTable(rollouts=16, turns=3, concurrency=8, max_tokens=24)
LIMITS = LimitsTable(deadline_s=2.0, grace_s=1.5, cancel_within_s=1.5, recover_within_s=8.0)
_GROUPS: Mapping[Scope, Group] = {Scope.ONE: Group.ONE, Scope.ALL: Group.ALL}
_STRUCK = 0  # of one shard

# Scenarios that no case is made of, by the beginning of their names, and why.
LEFT_OUT: Mapping[str, str] = {
    "pd_": "how prefill and decode servers share a request is between a router and its engines",
    "router_": "a probe of its own restarts the router under load",
    "wedge_watch": "the faults of stop_engine, stop_server, pause_keep and terminate_silent, with a longer deadline",
}
# Heads of answers that NeMo-Gym's parser refuses, as contracts call them: no fault to a client that takes them.
_HEADS: Mapping[str, str] = {
    "big_header": "header_line_9000",
    "many_headers": "header_lines_200",
    "double_length": "content_length_twice",
}
_WELL = frozenset({Symptom.OK, Symptom.SLOW})


@dataclass(frozen=True, slots=True)
class FaultCase:
    """One case and what it judges.

    `group` is RECOVERY where no shard is struck: then it is asked whether all of them still serve. `harmless`: a shard
    with this fault can serve every request.
    """

    check: str  # the scenario's name
    group: Group
    case: Case
    harmless: bool

    @property
    def silent(self) -> bool:
        """Whether requests have to wait for the deadline, so that the case takes its time."""
        return any(Symptom.SILENT in plan.fault.symptoms() for plan in self.case.scenario.fault)


def fault_cases(client: str = "nemo-gym") -> list[FaultCase]:
    """Every case that says something by the contract of this client, in the order of the scenarios' names."""
    faults = load_contract(client).faults
    taken = {name for name, row in _HEADS.items() if faults[row].handling is Handling.RETURNED}
    return [one for path in shipped() for one in _of(path) if one.check not in taken]


def without_fault() -> Case:
    """A case in which nothing happens: a router has to serve then, before it is judged by anything else."""
    path = shipped()[0]
    return _case("without_fault", path, load(path), Scope.ONE, ())


def _of(path: Path) -> list[FaultCase]:
    name = path.name.removesuffix(SUFFIX)
    if name.startswith(tuple(LEFT_OUT)):
        return []
    scenario = load(path)
    plans = scenario.fault
    harmless = all(plan.fault.symptoms() <= _WELL for plan in plans)
    if all(plan.fault.layer is Layer.CLIENT for plan in plans):
        return [FaultCase(name, Group.RECOVERY, _case(name, path, scenario, Scope.ONE, plans), harmless)]
    one_shard = tuple(plan.model_copy(update={"shards": (_STRUCK,)}) for plan in plans)
    struck = {Scope.ONE: one_shard, Scope.ALL: plans}
    return [
        FaultCase(name, group, _case(f"{name}-{scope}", path, scenario, scope, struck[scope]), harmless)
        for scope, group in _GROUPS.items()
    ]


def _case(name: str, path: Path, scenario: Scenario, scope: Scope, plans: tuple[FaultPlan, ...]) -> Case:
    fitted = {
        "fleet": FleetTable(shards=SHARDS, sigterm=scenario.fleet.sigterm),
        "load": LOAD,
        "limits": LIMITS,
        "fault": plans,
    }
    return Case(name, scenario.model_copy(update=fitted), scope, path)
