import asyncio
import signal
import threading

import pytest

from gymproof.chaos.portal import Blocking, Portal
from gymproof.chaos.waiting import wait_until


class Thing:
    answer = 42

    async def double(self, number: int) -> int:
        return 2 * number


def test_an_async_method_is_called_as_an_ordinary_one():
    with Portal() as portal:
        thing = Blocking(portal, Thing())

        assert (thing.double(4), thing.answer) == (8, 42)


def test_what_the_work_raises_reaches_the_caller():
    async def fails() -> None:
        raise KeyError("x")

    with Portal() as portal, pytest.raises(KeyError, match="x"):
        portal.call(fails())


@pytest.fixture
def _interruptible():
    """A test run in the background ignores SIGINT, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_an_interruption_cancels_the_work_and_waits_for_its_clean_up():
    steps = []

    async def work() -> None:
        try:
            steps.append("started")
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    with Portal() as portal, pytest.raises(KeyboardInterrupt):
        portal.call(work())

    assert steps == ["started", "cleaned up"]


def test_the_thread_is_gone_afterwards():
    before = threading.active_count()

    with Portal() as portal:
        portal.call(asyncio.sleep(0))

    assert threading.active_count() == before


def test_waiting_ends_when_the_condition_holds_or_the_time_is_over():
    answers = iter([False, False, True])

    assert asyncio.run(wait_until(lambda: next(answers), within_s=10, every_s=0))
    assert not asyncio.run(wait_until(lambda: False, within_s=0.01))
