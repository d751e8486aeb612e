"""A scenario is checked in full before anything starts."""

from pathlib import Path

import pytest

from gymproof.chaos.checkers import CHECKERS
from gymproof.chaos.choices import Setup
from gymproof.chaos.faults import FAULTS
from gymproof.chaos.faults.base import Layer
from gymproof.chaos.fleets import FLEETS
from gymproof.chaos.scenario import FleetTable, ScenarioError, Scope, cases, find, load, shipped
from gymproof.chaos.stage import Session

STORY = 'title = "t"\nwhy = "w"\n'
ROOT = Path(__file__).parents[2]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "story.chaos.toml"
    path.write_text(STORY + text)
    return path


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "fault: Field required"),
        ("fault = []", "fault: there is none; known: abort"),
        ('[[fault]]\nkind = "kil"', "unknown fault kind 'kil'; known: abort, accept_close"),
        (
            '[[fault]]\nkind = "kill"\nprocess = "gpu"',
            "fault 'kill': process: Input should be 'server', 'engine' or 'group'",
        ),
        ('[[fault]]\nkind = "kill"\nafter = 1', "fault 'kill': after: Extra inputs are not permitted (got 1)"),
        ('[[fault]]\nkind = "kill"\nwhen = "now"', "fault.0.when: Input should be a valid dictionary"),
        ('[[fault]]\nkind = "kill"\nwhen = { shard = 1 }', "fault.0.when.requests: Field required"),
        ('[[fault]]\nkind = "kill"\nwhen = { requests = 0 }', "when.requests: Input should be greater than 0 (got 0)"),
        (
            '[[fault]]\nkind = "kill"\nwhen = { shard = 3, requests = 1 }',
            "fault.0.when: no shard 3 in a fleet of 3 (0 to 2)",
        ),
        (
            '[[fault]]\nkind = "kill"\nat_s = 1.0\nwhen = { requests = 1 }',
            "fault.0: at_s and when: only one of them",
        ),
        ('[[fault]]\nkind = "kill"\nat_s = -1', "at_s: Input should be greater than or equal to 0 (got -1)"),
        ('[fleet]\nprefill = 3\n[[fault]]\nkind = "kill"', "fleet.prefill: 3 of 3 shards leave none for decode"),
        ('[[fault]]\nkind = "kill"\nshards = [3]', "no shard 3 in a fleet of 3 (0 to 2)"),
        (
            'checks = ["no_rollouts_lost"]\n[[fault]]\nkind = "kill"',
            "unknown check 'no_rollouts_lost'; known: answered",
        ),
        ('scopes = ["some"]\n[[fault]]\nkind = "kill"', "scopes.0: Input should be 'one' or 'all' (got 'some')"),
        ('scopes = []\n[[fault]]\nkind = "kill"', "scopes: Tuple should have at least 1 item"),
        ('checks = []\n[[fault]]\nkind = "kill"', "checks: Tuple should have at least 1 item"),
        ('[[fault]]\nkind = "kill"\nshards = []', "shards: Tuple should have at least 1 item"),
        (
            '[load]\nclient = "curl"\n[[fault]]\nkind = "kill"',
            "load.client: unknown client 'curl'; known: auto, nemo-gym",
        ),
        ('[load]\nrollouts = 0\n[[fault]]\nkind = "kill"', "load.rollouts: Input should be greater than 0 (got 0)"),
        ('[[fault]]\nkind = "kill"\n[fleet]\nsize = 3', "fleet.size: Extra inputs are not permitted"),
        ('[fault]\nkind = "kill"', "fault: one table; a fault is a [[fault]], with two brackets"),
        ('[[fault]]\nkind = "kill"\nat_s = inf', "at_s: Input should be a finite number"),
        ('[fleet]\nshards = 1000\n[[fault]]\nkind = "kill"', "fleet.shards: Input should be less than or equal to 64"),
        ("[[fault", "not TOML"),
    ],
)
def test_a_mistake_is_refused_with_the_file_the_key_and_what_would_be_right(tmp_path: Path, text: str, complaint: str):
    path = written(tmp_path, text)

    with pytest.raises(ScenarioError) as caught:
        cases(path)

    assert str(path) in str(caught.value)
    assert complaint in str(caught.value)


def test_a_fault_on_shards_is_run_against_one_and_against_all(tmp_path: Path):
    one, every = cases(written(tmp_path, '[[fault]]\nkind = "kill"'))

    assert (one.name, every.name) == ("story-one", "story-all")
    assert (one.targets(one.scenario.fault[0]), every.targets(every.scenario.fault[0])) == ((1,), (0, 1, 2))


def test_named_shards_and_faults_on_the_router_make_one_case(tmp_path: Path):
    (named,) = cases(written(tmp_path, '[[fault]]\nkind = "kill"\nshards = [0, 2]'))
    assert named.targets(named.scenario.fault[0]) == (0, 2)

    (router,) = cases(written(tmp_path, '[[fault]]\nkind = "router_restart"'))
    assert (router.name, router.targets(router.scenario.fault[0])) == ("story", ())


def test_scopes_can_be_chosen(tmp_path: Path):
    assert [case.scope for case in cases(written(tmp_path, 'scopes = ["all"]\n[[fault]]\nkind = "stop"'))] == [
        Scope.ALL
    ]


def test_scenarios_are_found_by_path_and_by_name_and_an_unknown_one_is_refused_with_the_known(tmp_path: Path):
    path = written(tmp_path, '[[fault]]\nkind = "kill"')

    assert find([str(path), "kill_engine", "kill_engine"]) == [
        path,
        ROOT / "chaos" / "scenarios" / "kill_engine.chaos.toml",
    ]
    with pytest.raises(ScenarioError, match="kill_engin: no such file, and no shipped scenario; shipped: abort, "):
        find(["kill_engin"])


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.name.split(".")[0])
def test_every_shipped_scenario_is_valid_and_judged_by_every_check(path: Path):
    assert load(path).checks == tuple(CHECKERS)


def test_every_fault_has_a_shipped_scenario():
    used = {plan.kind for path in shipped() for plan in load(path).fault}

    assert used == set(FAULTS)


def test_every_fault_file_has_a_row():
    shared = {"__init__", "base", "admin", "process", "toxic", "script"}
    files = {path.stem for path in (ROOT / "chaos" / "faults").glob("*.py")} - shared

    assert files == set(FAULTS)


def test_every_fault_says_its_layer_and_what_a_witness_sees():
    for kind, fault in FAULTS.items():
        assert isinstance(fault.layer, Layer), kind
        if fault.layer not in (Layer.ROUTER, Layer.CLIENT):
            required = {name for name, field in fault.model_fields.items() if field.is_required()}
            sample = fault(**dict.fromkeys(required, 500) if kind == "status" else dict.fromkeys(required, "empty"))
            assert sample.symptoms(), kind


def test_every_checker_file_has_a_row():
    files = {path.stem for path in (ROOT / "chaos" / "checkers").glob("*.py")} - {
        "__init__",
        "base",
        "evidence",
        "testing",
    }

    assert files == set(CHECKERS)


def test_a_fleet_of_real_servers_says_why_it_has_no_prefill_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(FLEETS, "vllm", lambda _setup: None)
    session = Session(Setup(out=tmp_path, fleet="vllm"))

    with pytest.raises(ScenarioError, match=r"fleet.prefill: .*NIXL, which does not run on a CPU"):
        session.fleet_table(FleetTable(shards=4, prefill=2))
