import pytest

from gymproof.chaos import ray_fleet
from gymproof.chaos.choices import Setup
from gymproof.chaos.scenario import FleetTable, ScenarioError
from gymproof.chaos.stage import Session


def test_without_ray_a_run_says_which_command_installs_it(monkeypatch, tmp_path):
    monkeypatch.setattr(ray_fleet, "find_spec", lambda _name: None)

    with pytest.raises(ScenarioError, match="fleet 'ray': there is no Ray here; `uv sync --extra ray`"):
        Session(Setup(out=tmp_path, fleet="ray"))


def test_shards_on_ray_have_the_simulated_ways(monkeypatch, tmp_path):
    monkeypatch.setattr(ray_fleet, "find_spec", lambda _name: object())
    table = FleetTable(shards=4, sigterm="silence", token_ms=1.0)

    assert Session(Setup(out=tmp_path, fleet="ray", shards=2)).fleet_table(table) == FleetTable(
        shards=2, sigterm="silence", token_ms=1.0
    )
