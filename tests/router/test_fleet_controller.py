"""The controller's loop against a router that forgets, fails and hangs."""

import asyncio
import contextlib

import pytest

from gymproof.router.controller import (
    FleetController,
    FleetExhaustedError,
    RouterLostError,
    RouterUnavailableError,
)
from gymproof.router.health import State

A, B = "http://a:8000/v1", "http://b:8000/v1"


class FakeRouter:
    """A router whose life the test decides."""

    def __init__(self) -> None:
        self.instance = "first"
        self.pushes: list[list[str]] = []
        self.pushed = asyncio.Event()
        self.announced: list[str] = []
        self.outcomes: dict[str, tuple[int, int]] = {}
        self.error: Exception | None = None
        self.hangs = False

    async def _reached(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    async def instance_id(self) -> str:
        await self._reached()
        return self.instance

    async def set_serving_backends(self, urls: list[str]) -> None:
        await self._reached()
        self.pushes.append(urls)
        self.pushed.set()

    async def announce_pause(self) -> None:
        await self._reached()
        self.announced.append("pause")

    async def announce_resume(self) -> None:
        await self._reached()
        self.announced.append("resume")

    async def drain_backend_outcomes(self) -> dict[str, tuple[int, int]]:
        await self._reached()
        outcomes, self.outcomes = self.outcomes, {}
        return outcomes


async def alive(_url: str) -> bool:
    return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def controlled(router: FakeRouter, **settings) -> FleetController:
    return FleetController(router, [A, B], **{"probe": alive, **settings})


def test_the_first_tick_pushes_the_full_set():
    router = FakeRouter()
    asyncio.run(controlled(router).tick())

    assert router.pushes == [[A, B]]


def test_an_unchanged_set_is_not_pushed_again():
    """A push clears what the router itself has learnt in between."""

    async def story() -> None:
        controller = controlled(router)
        for _ in range(3):
            await controller.tick()

    router = FakeRouter()
    asyncio.run(story())

    assert router.pushes == [[A, B]]


def test_another_instance_gets_the_set_at_the_next_tick():
    async def story() -> None:
        controller = controlled(router)
        await controller.tick()
        router.instance = "second"
        await controller.tick()

    router = FakeRouter()
    asyncio.run(story())

    assert router.pushes == [[A, B]] * 2


def test_what_the_router_saw_decides_and_counts_once():
    async def story() -> None:
        controller = controlled(router)
        await controller.tick()
        router.outcomes = {A: (0, 2)}
        for _ in range(5):
            await controller.tick()
        assert controller.states()[A] is State.SUSPECT
        router.outcomes = {A: (0, 1)}
        await controller.tick()
        assert controller.states()[A] is State.STALE  # dead, but it answers its probes

    router = FakeRouter()
    asyncio.run(story())

    assert router.pushes == [[A, B], [B]]


def test_restarts_and_refits_are_pushed_at_once():
    async def story() -> None:
        controller = controlled(router)
        await controller.report_restart(A)
        await controller.report_refit(A)

    router = FakeRouter()
    asyncio.run(story())

    assert router.pushes == [[B], [A, B]]


def test_a_pause_is_announced_once_to_each_instance_and_pushes_nothing():
    async def story() -> None:
        controller = controlled(router)
        await controller.tick()
        await controller.announce_pause()
        await controller.tick()
        assert (router.announced, router.pushes) == (["resume", "pause"], [[A, B]])
        router.instance = "second"
        await controller.tick()
        await controller.announce_resume()

    router = FakeRouter()
    asyncio.run(story())

    assert router.announced == ["resume", "pause", "pause", "resume"]
    assert router.pushes == [[A, B]] * 2


def test_silence_in_a_pause_ejects_nobody():
    async def silent(_url: str) -> bool:
        return False

    async def story() -> None:
        controller = controlled(FakeRouter(), probe=silent)
        await controller.announce_pause()
        for _ in range(10):
            await controller.tick()
        assert set(controller.states().values()) == {State.HEALTHY}
        await controller.announce_resume()
        for _ in range(3):
            await controller.tick()
        assert set(controller.states().values()) == {State.SUSPECT}

    asyncio.run(story())


@pytest.mark.parametrize("trouble", ["raises", "hangs"])
def test_a_router_that_is_away_ends_nothing_and_is_told_later(trouble: str):
    async def story() -> None:
        controller = controlled(router, call_timeout_s=0.05)
        router.hangs = trouble == "hangs"
        router.error = RouterUnavailableError("restarting")
        await controller.tick()
        await controller.report_restart(B)
        router.hangs, router.error = False, None
        await controller.tick()

    router = FakeRouter()
    asyncio.run(story())

    assert router.pushes == [[A]]


def test_a_set_whose_push_failed_half_way_is_pushed_again():
    """Whether the failed push was heard is not known, so going back to the set before is a change too."""

    async def story() -> None:
        controller = controlled(router)
        await controller.tick()
        heard = router.set_serving_backends

        async def heard_but_not_confirmed(urls: list[str]) -> None:
            await heard(urls)
            raise RouterUnavailableError("connection lost")

        router.set_serving_backends = heard_but_not_confirmed
        await controller.report_restart(A)
        router.set_serving_backends = heard
        await controller.report_refit(A)

    router = FakeRouter()
    asyncio.run(story())

    assert router.pushes == [[A, B], [B], [A, B]]


def test_a_router_that_is_gone_for_good_ends_the_loop():
    router = FakeRouter()
    router.error = RouterLostError("gone")
    with pytest.raises(RouterLostError):
        asyncio.run(controlled(router).run(0.01))


def test_an_exhausted_fleet_ends_the_loop_with_every_shards_state():
    async def story() -> None:
        controller = controlled(FakeRouter(), clock=clock, exhausted_after_s=60.0)
        await controller.tick()
        await controller.report_restart(A)
        await controller.report_restart(B)
        clock.now += 60.0
        await controller.tick()
        clock.now += 1.0
        await controller.tick()

    clock = Clock()
    with pytest.raises(FleetExhaustedError, match=f"61 s: {A} stale for 1 s; {B} stale for 1 s"):
        asyncio.run(story())


def test_a_fleet_with_one_shard_left_is_not_exhausted():
    async def story() -> None:
        controller = controlled(FakeRouter(), clock=clock, exhausted_after_s=0.0)
        await controller.report_restart(A)
        for _ in range(5):
            clock.now += 1000.0
            await controller.tick()

    clock = Clock()
    asyncio.run(story())


@pytest.mark.parametrize("trouble", ["no", "raises", "hangs"])
def test_probes_that_get_no_answer_eject_only_their_shard(trouble: str):
    async def probe(url: str) -> bool:
        if url == B or trouble == "no":
            return url == B
        if trouble == "raises":
            raise ValueError("a driver's own mistake")
        await asyncio.Event().wait()
        return True

    async def story() -> None:
        controller = controlled(router, probe=probe, probe_timeout_s=0.02)
        for _ in range(6):
            await controller.tick()
        assert controller.states() == {A: State.DEAD, B: State.HEALTHY}

    router = FakeRouter()
    asyncio.run(story())

    assert router.pushes == [[A, B], [B]]


def test_a_restarted_router_need_not_wait_for_a_hanging_probe():
    async def probe(_url: str) -> bool:
        await asyncio.Event().wait()
        return True

    async def story() -> None:
        async with asyncio.timeout(10.0):
            ticking = asyncio.create_task(controlled(router, probe=probe, probe_timeout_s=60.0).run())
            await router.pushed.wait()
            ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticking

    router = FakeRouter()
    asyncio.run(story())
