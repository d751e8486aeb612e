"""What a restarted actor knows of the fleet, and what the controller knows of live traffic."""

import asyncio
import signal

import pytest

from gymproof.router.health import State

pytest.importorskip("ray", reason="needs the ray extra")


def test_a_quarantined_shard_stays_so_over_a_restart(on_stage):
    async def story(stage):
        await stage.controller.report_restart(stage.urls[1])
        before = stage.requests()[1]
        async with stage.load():
            stage.kill()
            await stage.served_again()
        await stage.came_back()

        assert stage.requests()[1] == before

    on_stage(story)


def test_a_refitted_shard_serves_again_after_a_restart(on_stage):
    async def story(stage):
        await stage.controller.report_restart(stage.urls[1])
        stage.kill()
        await stage.controller.report_refit(stage.urls[1])
        before = stage.requests()[1]
        await stage.served_again()
        async with stage.load():
            pass

        assert stage.requests()[1] > before

    on_stage(story)


def test_every_outcome_is_counted_once(on_stage):
    async def story(stage):
        async with stage.load():
            pass
        await asyncio.gather(*(stage.controller.tick() for _ in range(3)))

        assert stage.handle.successes == stage.answered()
        assert stage.handle.failures == 0

    on_stage(story)


def test_a_pause_outlives_a_restart(on_stage):
    async def story(stage):
        await stage.controller.announce_pause()
        stage.kill()
        await stage.served_again()
        paused = await stage.router.actor.__ray_call__.remote(lambda self: self._router.fleet.paused)

        assert paused

    on_stage(story)


def test_a_shard_that_died_is_ejected_and_a_restarted_router_is_told(on_stage, tools):
    async def story(stage):
        async with stage.load(turns=20):
            stage.fleet.shards[1].signal("group", signal.SIGKILL)
        dead = stage.urls[1]
        await tools.until(lambda: stage.controller.states()[dead] is State.DEAD, "the ledger's verdict", 30.0)
        stage.kill()
        await stage.served_again()
        await stage.controller.tick()
        serving = await stage.router.actor.__ray_call__.remote(
            lambda self: [shard.record.serving for shard in self._router.fleet.shards]
        )

        assert serving == [True, False]

    on_stage(story)
