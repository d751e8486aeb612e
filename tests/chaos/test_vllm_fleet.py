import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from gymproof.chaos import fleets
from gymproof.chaos.choices import Setup
from gymproof.chaos.guard import Guard
from gymproof.chaos.scenario import FleetTable, ScenarioError, cases
from gymproof.chaos.stage import Session
from gymproof.chaos.vllm import fleet as module
from gymproof.chaos.vllm.fleet import VllmFleet
from gymproof.chaos.vllm.inside import PROGRAMS
from gymproof.chaos.vllm.install import Vllm


@pytest.fixture
def launched(monkeypatch, tmp_path):
    """Command lines and environments of the servers of a fleet on GPUs."""
    started = []
    monkeypatch.setattr(module, "ProcessGroup", lambda argv, **options: started.append((argv, options["env"])))

    async def launch(count, gpus, model, args):
        vllm = Vllm(Path("/opt/python"), "0.33.0", gpus)
        fleet = VllmFleet(count, folder=tmp_path, vllm=vllm, model=model, args=args)
        with ExitStack() as stack, Guard() as guard:
            await fleet.prepare(stack, guard)
            for index in range(count):
                await fleet.launch(index, 8000 + index, guard, tmp_path / f"{index}.jsonl", tmp_path / f"{index}.out")

    def run(count, gpus, model="some/model", args=()):
        asyncio.run(launch(count, gpus, model, args))
        return started

    return run


def value(argv, name):
    return argv[argv.index(name) + 1]


def test_shards_are_spread_over_the_gpus_and_share_their_memory(launched):
    started = launched(3, ("2", "5"))

    assert [env["CUDA_VISIBLE_DEVICES"] for _, env in started] == ["2", "5", "2"]
    assert {value(argv, "--gpu-memory-utilization") for argv, _ in started} == {"0.450"}


def test_a_server_is_started_as_its_users_do_with_their_arguments_last(launched):
    ((argv, env),) = launched(1, ("0",), args=("--max-num-seqs", "8"))

    assert argv[:3] == ["/opt/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert argv[-2:] == ["--max-num-seqs", "8"]
    assert value(argv, "--model") == "some/model"
    assert value(argv, "--served-model-name") == "tiny"
    assert value(argv, "--port") == "8000"
    assert env["GYMPROOF_SHARD_LOG"].endswith("0.jsonl")
    assert env["PYTHONPATH"].split(":")[0] == str(PROGRAMS)
    assert "VLLM_CPU_KVCACHE_SPACE" not in env


def test_the_tiny_model_takes_little_of_a_gpu_and_downloads_nothing(launched, monkeypatch):
    async def tiny_model(_python, _guard):
        return Path("/cache/tiny")

    monkeypatch.setattr(module, "tiny_model", tiny_model)
    ((argv, env),) = launched(1, ("0",), model=None)

    assert value(argv, "--model") == "/cache/tiny"
    assert value(argv, "--gpu-memory-utilization") == "0.100"
    assert env["HF_HUB_OFFLINE"] == "1"


SCENARIO = """
title = "t"
why = "w"
limits = { deadline_s = 2.0 }
load = { max_tokens = 10 }
[[fault]]
kind = "kill"
shards = [2]
"""


def test_a_case_is_fitted_to_a_fleet_that_is_slower_and_smaller(tmp_path):
    path = tmp_path / "a.chaos.toml"
    path.write_text(SCENARIO)
    (case,) = cases(path)

    fitted = case.fitted(FleetTable(shards=5), 2.5)

    assert fitted.scenario.fleet.shards == 5
    assert (fitted.scenario.limits.deadline_s, fitted.scenario.limits.max_attempts) == (5.0, 2)
    assert fitted.scenario.load.max_tokens == 25
    assert case.scenario.limits.deadline_s == 2.0
    with pytest.raises(ScenarioError, match="no shard 2 in a fleet of 2"):
        case.fitted(FleetTable(shards=2), 1.0)


def test_a_fleet_has_as_many_shards_as_were_chosen_and_a_real_one_no_simulated_ways(monkeypatch, tmp_path):
    monkeypatch.setattr(fleets, "find_vllm", lambda python: Vllm(Path(python), "0.32.0"))
    table = FleetTable(shards=4, sigterm="silence")
    simulated = Session(Setup(out=tmp_path, shards=2))
    real = Session(Setup(out=tmp_path, fleet="vllm", vllm_python="/opt/python"))

    assert simulated.fleet_table(table) == FleetTable(shards=2, sigterm="silence")
    assert real.fleet_table(table) == FleetTable(shards=4)
