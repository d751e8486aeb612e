"""The router's actor dies in every way, under load of the real NeMo-Gym client, and comes back on its URL."""

import asyncio
import os
import time

import pytest

ray = pytest.importorskip("ray", reason="needs the ray extra")

RESTARTS_IN_A_ROW = 10
ORPHAN_LIVES_S = 4.0
STRANGER_STAYS_S = 10.0


def leave_an_orphan(lives_s: float) -> int:
    """Fork a process that keeps every descriptor of this one, the listening socket too."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        time.sleep(lives_s)
        os._exit(0)
    return pid


def test_a_killed_process(on_stage):
    async def story(stage):
        async with stage.load():
            stage.kill()
            await stage.served_again()
        await stage.came_back()

    on_stage(story)


def test_a_kill_by_ray(on_stage, tools):
    async def story(stage):
        async with stage.load():
            old = tools.actor_pid()
            ray.kill(stage.router.actor, no_restart=False)
            await stage.pid_other_than(old)
            await stage.served_again()
        await stage.came_back()

    on_stage(story)


def test_a_crash_during_the_start_after_a_crash(on_stage, tools):
    async def story(stage):
        async with stage.load():
            old = stage.kill()
            with tools.listening(stage.port):  # holds the next process in its constructor
                starting = await stage.pid_other_than(old)
                await asyncio.sleep(0.5)  # inside it, whatever it is doing there
                assert stage.kill() == starting
            await stage.served_again()
        await stage.came_back()

    on_stage(story)


def test_an_orphan_that_holds_the_listening_socket(on_stage):
    async def story(stage):
        async with stage.load():
            await stage.router.actor.__ray_call__.remote(lambda _: leave_an_orphan(ORPHAN_LIVES_S))
            killed_at = time.monotonic()
            stage.kill()
            await stage.served_again()
            assert time.monotonic() - killed_at > ORPHAN_LIVES_S / 2  # it did stand in the way
        await stage.came_back()

    on_stage(story)


def test_another_program_on_the_port_for_longer_than_the_patience(on_stage, tools):
    """The actor's process gives up, is started again by Ray, and again, until the port is free."""

    async def story(stage):
        async with stage.load():
            first = stage.kill()
            with tools.listening(stage.port):
                freed_at = time.monotonic() + STRANGER_STAYS_S
                second = await stage.pid_other_than(first)
                await stage.pid_other_than(second)
                await asyncio.sleep(freed_at - time.monotonic())
            await stage.served_again()
        await stage.came_back()

    on_stage(story, settle_s=2.0)


def test_another_program_on_the_port_for_good_ends_neither_actor_nor_controller(on_stage, tools):
    async def story(stage):
        pids = [stage.kill()]
        with tools.listening(stage.port):
            for _ in range(3):
                pids.append(await stage.pid_other_than(pids[-1]))
            with pytest.raises(ray.exceptions.ActorUnavailableError):
                await stage.router.actor.is_serving.remote()
        await stage.served_again()
        await stage.came_back()

    on_stage(story, settle_s=0.5)


def test_ten_restarts_in_a_row_under_load(on_stage):
    async def story(stage):
        for _ in range(RESTARTS_IN_A_ROW):
            async with stage.load():
                stage.kill()
                await stage.served_again()
        await stage.came_back(RESTARTS_IN_A_ROW)

    on_stage(story)


def test_a_thread_that_stops_serving_ends_the_process(on_stage, tools):
    """A living actor without a listener would be restarted by nobody."""

    async def story(stage):
        old = tools.actor_pid()
        stage.router.actor.__ray_call__.remote(lambda self: self._loop.call_soon_threadsafe(self._stop.set))
        await stage.pid_other_than(old)
        await stage.served_again()
        await stage.came_back()

    on_stage(story)
