"""The router's own health monitor, and what readmits a shard."""

import asyncio

import pytest

from gymproof.router.health import Readmit, State
from gymproof.router.probes import Finding, first_model, read_generation, read_health, wants_generation

FAST = {"probe_interval_s": 0.03, "probe_timeout_s": 0.2, "eject_after": 2}


async def kill_and_restart(stage, backend):
    port = backend.port
    await backend.stop()
    await stage.until(lambda: stage.states()[0] == "dead", "the shard is ejected")
    await backend.start(port)


def test_an_idle_dead_shard_is_found_and_readmitted_after_a_real_generation(kit):
    async def story():
        async with kit.Stage(kit.serve, **FAST) as stage:
            await kill_and_restart(stage, stage.backends[0])
            await stage.until(lambda: stage.states() == ["healthy"], "the shard is readmitted")
            return (await stage.ask()).status

    assert asyncio.run(story()) == 200


def test_with_readmission_by_refit_a_restarted_shard_stays_out_until_it_is_reported(kit):
    async def story():
        async with kit.Stage(kit.serve, readmit="refit", **FAST) as stage:
            backend = stage.backends[0]
            await kill_and_restart(stage, backend)
            await stage.until(lambda: stage.states() == ["stale"], "the shard answers again")
            refused = await stage.ask()
            assert stage.router.report_refit(backend.url)
            return refused.status, (await stage.ask()).status

    assert asyncio.run(story()) == (409, 200)


def test_without_a_way_to_generate_live_traffic_decides_one_request_at_a_time(kit):
    async def story():
        backend = kit.Backend(kit.serve, generates=False)
        async with kit.Stage(backend, kit.serve, **FAST) as stage:
            await kill_and_restart(stage, backend)
            await stage.until(lambda: stage.states()[0] == "suspect", "the shard is on trial")
            assert stage.router.fleet.shards[0].record.trial
            await stage.ask()
            await stage.until(lambda: stage.states()[0] == "healthy", "the trial has cleared it")
            return len(backend.exchanges)

    assert asyncio.run(story()) == 1


def test_a_frozen_engine_with_a_green_health_is_not_readmitted(kit):
    """Every answer of /health is 200; generations, the probe's too, never come."""

    class Frozen(kit.Backend):
        def _is_probe(self, head, _body):
            return not head.startswith(b"POST")

    async def story():
        frozen = Frozen(kit.hang)
        settings = FAST | {"probe_timeout_s": 0.05, "backend_timeout_s": 0.3}
        async with kit.Stage(frozen, kit.serve, **settings) as stage:
            await asyncio.gather(*(stage.ask() for _ in range(4)))
            await stage.until(lambda: stage.states()[0] in {"dead", "stale"}, "the frozen shard is ejected")
            seen = {stage.states()[0]}
            for _ in range(20):
                assert (await stage.ask()).status == 200
                seen.add(stage.states()[0])
                await asyncio.sleep(0.02)
            return seen

    assert asyncio.run(story()) <= {"dead", "stale"}


def test_a_slow_health_ejects_nobody_who_serves(kit):
    class SlowHealth(kit.Backend):
        async def _converse(self, reader, writer):
            await asyncio.sleep(0)
            await super()._converse(reader, writer)

        def _probe_answer(self, head):
            return b"" if head.startswith(b"GET /health") else super()._probe_answer(head)

    async def slow(exchange):
        await asyncio.sleep(0.03)
        exchange.send(kit.answer())

    async def story():
        settings = FAST | {"probe_timeout_s": 0.05}
        async with kit.Stage(SlowHealth(slow), **settings) as stage:
            client = await stage.client()
            statuses = {(await client.ask()).status for _ in range(40)}
            return statuses, stage.states()

    assert asyncio.run(story()) == ({200}, ["healthy"])


def test_an_idle_suspect_recovers_without_traffic(kit):
    async def once_bad(exchange):
        exchange.reset() if exchange.number == 1 else exchange.send(kit.answer())

    async def story():
        async with kit.Stage(once_bad, **FAST) as stage:
            await stage.ask()
            await stage.until(lambda: stage.states() == ["healthy"], "the suspect is cleared")

    asyncio.run(story())


def test_with_health_off_nothing_is_probed_and_everything_serves(kit):
    async def story():
        async with kit.Stage(kit.reset, kit.serve, health="off", eject_after=1) as stage:
            statuses = [(await stage.ask()).status for _ in range(10)]
            return statuses, stage.states(), stage.backends[1].accepted

    statuses, states, _ = asyncio.run(story())

    assert statuses == [200] * 10
    assert states == ["healthy", "healthy"]


@pytest.mark.parametrize(
    ("status", "finding"),
    [(200, Finding.WELL), (204, Finding.WELL), (404, Finding.WELL), (405, Finding.WELL), (503, Finding.UNANSWERED)],
)
def test_a_missing_health_route_is_no_illness(status, finding):
    assert read_health(status) is finding


@pytest.mark.parametrize(
    ("status", "body", "finding"),
    [
        (200, b'{"choices":[]}', Finding.WELL),
        (404, b"{}", Finding.UNTESTABLE),
        (401, b"{}", Finding.UNTESTABLE),
        (429, b"", Finding.UNANSWERED),
        (503, b"", Finding.UNANSWERED),
        (500, b"", Finding.REFUSED),
        (200, b"", Finding.REFUSED),
        (200, b'{"choices":[{"finish_reason":"abort"}]}', Finding.UNANSWERED),
    ],
)
def test_only_a_real_generation_proves_a_shard(status, body, finding):
    assert read_generation(status, [], body) is finding


def test_a_generation_is_asked_for_only_where_it_decides_something():
    assert wants_generation(State.SUSPECT, Readmit.REFIT)
    assert wants_generation(State.STALE, Readmit.PROBE)
    assert not wants_generation(State.STALE, Readmit.REFIT)
    assert not wants_generation(State.HEALTHY, Readmit.PROBE)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"data":[]}', b'{"data":[{"id":1}]}', b"[]"])
def test_an_odd_model_list_names_no_model(body):
    assert first_model(body) is None
