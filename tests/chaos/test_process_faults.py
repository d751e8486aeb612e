import asyncio
import time

import aiohttp
import pytest
from pydantic import ValidationError

from gymproof.chaos.faults.base import Layer, Symptom, Target
from gymproof.chaos.faults.kill import Kill
from gymproof.chaos.faults.kill_node import KillNode
from gymproof.chaos.faults.pause import Pause
from gymproof.chaos.faults.sleep import Sleep
from gymproof.chaos.faults.stop import Stop
from gymproof.chaos.faults.terminate import Terminate
from gymproof.chaos.fleet import SimFleet
from gymproof.chaos.witness import Witness

FAULTS = [
    *(Kill(process=process) for process in ("server", "engine", "group")),
    KillNode(),
    *(Stop(process=process) for process in ("server", "engine", "group")),
    Terminate(),
    *(Pause(mode=mode) for mode in ("abort", "wait", "keep")),
    *(Sleep(level=level) for level in (0, 1, 2)),
]
LIVES_ON = (Stop, Pause, Sleep)


def named(fault) -> str:
    return "-".join([type(fault).__name__, *map(str, fault.model_dump().values())])


@pytest.mark.parametrize("fault", FAULTS, ids=named)
def test_a_process_fault_shows_its_symptoms_and_heals(tmp_path, fault):
    async def story():
        async with SimFleet(2, folder=tmp_path) as fleet:
            struck, other = fleet.shards
            async with Witness([struck.url]) as witness:
                await fault.inject(Target(struck))
                acts, seen = await witness.sees(fault)
                assert acts, seen
            await fault.heal(Target(struck))
            await fault.heal(Target(struck))
            async with aiohttp.ClientSession() as session:
                for shard in fleet.shards:
                    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
                    async with session.post(f"{shard.url}/v1/chat/completions", json=body) as response:
                        assert response.status == 200
            assert other.generation == 1
            assert struck.generation == (1 if isinstance(fault, LIVES_ON) else 2)

    asyncio.run(story())


def test_a_stopped_engine_is_not_seen_by_health(tmp_path):
    async def story():
        async with SimFleet(1, folder=tmp_path) as fleet, aiohttp.ClientSession() as session:
            await Stop().inject(Target(fleet.shards[0]))
            async with session.get(f"{fleet.shards[0].url}/health") as response:
                assert response.status == 200

    asyncio.run(story())


def test_healing_is_quick(tmp_path):
    async def story():
        async with SimFleet(1, folder=tmp_path) as fleet:
            target = Target(fleet.shards[0])
            await Kill().inject(target)
            began = time.monotonic()
            await Kill().heal(target)
            assert time.monotonic() - began < 10.0  # a tenth of a second or two, on a quiet machine

    asyncio.run(story())


def test_only_processes_that_a_shard_has_can_be_named():
    for fault in (Kill, Stop):
        with pytest.raises(ValidationError, match="'server', 'engine' or 'group'"):
            fault(process="gpu")
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Terminate(process="engine")


def test_process_faults_need_no_hop_and_never_look_well():
    assert {fault.layer for fault in FAULTS} == {Layer.PROCESS}
    assert not any(Symptom.OK in fault.symptoms() for fault in FAULTS)
