"""Exploring: what a seed draws, what a failure shrinks to, and that mistakes put into the router are found."""

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gymproof.chaos.checkers.base import Status, Verdict
from gymproof.chaos.cli import app
from gymproof.chaos.explore.budget import parse_budget
from gymproof.chaos.explore.campaign import explore, virtual_level
from gymproof.chaos.explore.draw import NOT_VIRTUAL, PARAMETERS, REAL_KINDS, VIRTUAL_KINDS, draw
from gymproof.chaos.explore.shrink import shrink
from gymproof.chaos.faults import FAULTS
from gymproof.chaos.scenario import Case, Scenario, Scope, load
from gymproof.chaos.virtual.core import GYM_ROUTER_CORE, load_core

SEEDS = range(300)
FAILED = {"recovers": Verdict(Status.FAIL, "it did not")}


def planted():
    """The routers with mistakes: a module beside this one, which nobody can import by name."""
    path = Path(__file__).parent / "planted" / "routers.py"
    spec = importlib.util.spec_from_file_location("planted_routers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def campaign(seeds, level, out, kinds=VIRTUAL_KINDS, **options):
    return explore(
        seeds,
        lambda seed: draw(seed, kinds),
        level,
        out=out,
        **{"budget_s": 100.0, "most_findings": 1, "replay": "{file} {seed}"} | options,
    )


def test_a_seed_always_draws_the_same_scenario():
    assert [draw(seed) for seed in SEEDS] == [draw(seed) for seed in SEEDS]


def test_every_fault_is_drawn_sooner_or_later():
    drawn = {plan.kind for seed in range(1000) for plan in draw(seed, REAL_KINDS).fault}

    assert drawn == set(FAULTS)


def test_what_cannot_be_virtual_is_not_drawn_there():
    drawn = {plan.kind for seed in range(1000) for plan in draw(seed).fault}

    assert drawn == set(VIRTUAL_KINDS)
    assert not drawn & NOT_VIRTUAL


def test_parameters_are_drawn_for_faults_that_exist():
    assert not PARAMETERS.keys() - FAULTS.keys()


def test_a_shard_is_struck_by_one_fault_at_most():
    for seed in SEEDS:
        struck = [shard for plan in draw(seed).fault for shard in plan.shards or ()]
        assert len(struck) == len(set(struck))


def test_a_failure_shrinks_to_what_it_needs():
    needed = [seed for seed in SEEDS if any(plan.kind == "kill" for plan in draw(seed).fault)]

    def fails(scenario: Scenario) -> bool:
        return any(plan.kind == "kill" for plan in scenario.fault) and scenario.load.rollouts > 1

    for seed in (seed for seed in needed if fails(draw(seed))):
        smallest = shrink(draw(seed), fails)
        assert [plan.kind for plan in smallest.fault] == ["kill"]
        assert (smallest.fleet.shards, smallest.load.rollouts, smallest.load.turns) == (1, 2, 1)
        assert smallest.limits == Scenario.model_fields["limits"].default
        assert smallest.fault[0].at_s is smallest.fault[0].heal_after_s is None


def test_the_router_survives_what_is_drawn(tmp_path):
    tally = campaign(range(20), virtual_level(load_core(GYM_ROUTER_CORE)), tmp_path)

    assert tally.findings == []
    assert tally.done == 20
    assert tally.statuses[Status.PASS] > 10  # the rest drew a fault that could not act


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("bug", "kinds"),
    [
        ("row_INVALID", ("garbage", "wrong_body", "cut_body")),
        ("row_ERRED", ("status", "kill")),
        ("row_BUSY", ("status", "kill")),
        (
            "counter",
            ("stop", "kill"),
        ),  # the default policy keeps books of its own: what goes blind is the progress watch
        ("cancel", ("hang_ups", "latency", "kill")),
    ],
)
@pytest.mark.slow
def test_a_planted_mistake_is_found_and_shrunk(tmp_path, bug, kinds):
    level = virtual_level(planted().core(bug))
    tally = campaign(SEEDS, level, tmp_path, kinds)  # of few kinds, so that a new fault changes nothing here

    [finding] = tally.findings
    smallest = load(finding.file)
    assert len(smallest.fault) <= 2
    assert smallest.load.rollouts * smallest.load.turns <= 3
    again = virtual_level(load_core(GYM_ROUTER_CORE))(Case("again", smallest, Scope.ONE, finding.file), finding.again)
    assert Status.FAIL not in {verdict.status for verdict in again.values()}  # it is the mistake that was found


def test_a_campaign_ends_with_its_budget(tmp_path):
    tally = campaign(SEEDS, lambda _case, _seed: {}, tmp_path, budget_s=0.0)

    assert tally.done == 0


def test_a_campaign_ends_after_enough_failures(tmp_path):
    tally = campaign(SEEDS, lambda _case, _seed: FAILED, tmp_path, most_findings=2)

    assert [finding.seed for finding in tally.findings] == [0, 1]


def test_an_interrupted_campaign_has_what_it_had_found(tmp_path):
    def run(_, seed):
        if seed == 2:
            raise KeyboardInterrupt
        return {"recovers": Verdict(Status.PASS, "")}

    tally = explore(range(9), draw, run, out=tmp_path, budget_s=60, most_findings=1, replay="")

    assert (tally.done, tally.interrupted) == (2, True)


def test_a_failure_is_a_file_that_says_how_to_run_it_again(tmp_path):
    [finding] = campaign(SEEDS, lambda _case, _seed: FAILED, tmp_path).findings

    assert load(finding.file) == finding.smallest
    assert f"# {finding.file} 0" in finding.file.read_text()


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("3m", 180.0), ("1.5h", 5400.0)])
def test_a_budget_is_a_number_and_a_unit(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "0s", "m", "-1s", "1 day"])
def test_another_budget_is_refused_with_what_would_be_right(text):
    with pytest.raises(ValueError, match="such as 90s or 10m"):
        parse_budget(text)


def test_the_command_says_what_it_did_and_exits_with_0(tmp_path):
    result = CliRunner().invoke(app, ["explore", "--seeds", "3", "--out", str(tmp_path)])

    assert result.exit_code == 0, result.output
    assert "3 seeds: " in result.output


def test_the_command_shows_a_failing_seed_and_exits_with_1(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent / "planted")
    options = ["--seeds", "20", "--most-failures", "1", "--router-core", "routers:dead", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, ["explore", *options])

    assert result.exit_code == 1, result.output
    again = next(line for line in result.output.splitlines() if "again: " in line).partition("gym-chaos ")[2]
    repeated = CliRunner().invoke(app, [*again.split(), "--out", str(tmp_path / "again")])
    assert repeated.exit_code == 1, repeated.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--budget", "soon"], "budget 'soon'"),
        (["--router-core", "gymproof.nothing:here"], "would be right"),
        (["router_kill"], "there is no router_restart in virtual time"),
        (["no_such_scenario"], "no such file"),
        (["--router-core", "json:dumps", "--seeds", "1"], "could not be run: TypeError"),
    ],
)
def test_bad_input_is_refused_with_2(tmp_path, arguments, said):
    result = CliRunner().invoke(app, ["explore", "--out", str(tmp_path), *arguments])

    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
