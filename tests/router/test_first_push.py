"""Before the controller's first word: requests wait for it, for a while."""

import asyncio

import orjson
import pytest


async def held(stage, count):
    """Ask `count` times of a router whose controller has said nothing yet; the requests, once all wait."""
    asking = [asyncio.create_task(stage.ask()) for _ in range(count)]
    await stage.until(lambda: stage.router.tally.in_flight == count, "all requests wait")
    await asyncio.sleep(0.05)
    assert not any(backend.exchanges for backend in stage.backends)
    return asking


@pytest.mark.parametrize(("pushed", "status"), [(1, 200), (0, 409)])
def test_before_the_first_push_requests_wait_for_it(kit, pushed, status):
    async def story():
        async with kit.Stage(kit.serve, kit.serve, health="pushed", first_push_within_s=60) as stage:
            asking = await held(stage, 8)
            stage.router.set_serving([backend.url for backend in stage.backends[:pushed]])
            return {(await asked).status for asked in asking}, stage.states()

    assert asyncio.run(story()) == ({status}, ["healthy" if pushed else "stale", "stale"])


def test_without_a_push_every_backend_serves_after_a_while_and_the_log_says_so(kit, tmp_path, caplog):
    log = tmp_path / "events.jsonl"

    async def story():
        settings = {"health": "pushed", "first_push_within_s": 0.3, "event_log": log}
        async with kit.Stage(kit.serve, kit.serve, **settings) as stage:
            first, second = stage.backends
            stage.router.set_members([first.url, second.url, "http://127.0.0.1:1"])
            statuses = {reply.status for reply in await asyncio.gather(*(stage.ask() for _ in range(8)))}
            served = [len(first.exchanges) > 0, len(second.exchanges) > 0]
            stage.router.set_serving([second.url])
            return statuses, served, stage.states()

    assert asyncio.run(story()) == ({200}, [True, True], ["dead", "healthy", "dead"])
    assert "no controller has said who serves" in caplog.text
    assert sum(orjson.loads(line)["event"] == "no_push" for line in log.read_bytes().splitlines()) == 1


def test_a_router_that_is_not_to_wait_for_a_push_serves_at_once(kit):
    async def story():
        async with kit.Stage(kit.serve, health="pushed", first_push_within_s=0) as stage:
            await stage.until(lambda: stage.states() == ["suspect"], "the backend serves")
            return (await stage.ask()).status, stage.router.pushes

    assert asyncio.run(story()) == (200, 0)


def test_a_request_that_waits_for_a_push_is_answered_at_its_deadline(kit):
    async def story():
        settings = {"health": "pushed", "first_push_within_s": 60, "backend_timeout_s": 0.2}
        async with kit.Stage(kit.serve, **settings) as stage:
            return (await stage.ask()).status

    assert asyncio.run(story()) == 409
