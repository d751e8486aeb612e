"""A router that is started before all its shards are: in a whole job the parts come up in any order."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from gymproof.validators.status import right_status

from ...under_test import RouterError, RouterUnderTest
from ..findings import Group, Word
from .backends import Backend, Respond, listening
from .bench import BACK_WITHIN_S, Bench, flaw, tally, until_used
from .results import Result, safe

_NAME = Group.RESTART.slug
_SLACK_S = 5.0
_LATE_S = 40.0  # some look for their shards every half minute while they start
_ASKED, _AT_ONCE = 20, 8


@dataclass
class _Starting:
    """A router that is started while not all its shards are there."""

    bench: Bench
    name: str
    usual_s: float  # what a start takes here when all is well
    stack: AsyncExitStack

    async def begin(self, up: int) -> tuple[Sequence[Backend], RouterUnderTest, asyncio.Task[object]]:
        """Start it with only the first `up` of two shards there."""
        scripts: dict[str, Respond] = {}
        backends = await self.stack.enter_async_context(listening(2, scripts, up=False))
        for backend in backends[:up]:
            await backend.up()
        urls = [backend.url for backend in backends]
        router = self.bench.router(self.name, urls, start_within_s=self.patience_s + _LATE_S)
        starting: asyncio.Task[object] = asyncio.ensure_future(self.stack.enter_async_context(router))
        self.stack.callback(starting.cancel)  # should the judge itself be interrupted
        await asyncio.wait([starting], timeout=self.patience_s)
        return backends, router, starting

    @property
    def patience_s(self) -> float:
        """By when a router that does not wait for its shards answers."""
        return 2 * self.usual_s + _SLACK_S


async def none_up(bench: Bench, usual_s: float) -> Result:
    """The router is up before any shard is."""
    async with AsyncExitStack() as stack:
        start = _Starting(bench, f"{_NAME}-none-up", usual_s, stack)
        backends, router, starting = await start.begin(0)
        early = await bench.ask_as(router.url, "early") if starting.done() and not starting.exception() else None
        for backend in backends:
            await backend.up()
        began = time.monotonic()
        give_up, retry = (right_status(role, bench.contract) for role in ("give_up", "retry"))
        right = (
            f"Start at once, answer {give_up} or {retry} while there is no shard, and find the shards when they come."
        )
        try:
            await starting
            await bench.until_serving(router.url, BACK_WITHIN_S)
        except RouterError as error:
            how = f"does not serve {time.monotonic() - began:.0f} s after they are up"
            return Result(Word.UNSAFE, f"started before its shards, it {how}: {first_line(error)}", right, [str(error)])
        serves = f"serves {time.monotonic() - began:.1f} s after they are up"
        if early is None:
            return Result(
                Word.BOUNDED, f"started before its shards, it listens only once they are up: it {serves}", right
            )
        seen = f"started before its shards, it answers {early.status or early.ending}, and {serves}"
        if bad := flaw(bench.contract, early):
            return Result(Word.UNSAFE, f"{seen}; {bad}", right, [str(early)])
        return safe(seen, [str(early)])


async def one_missing(bench: Bench, usual_s: float) -> Result:
    """One shard is not there at the start, and comes later."""
    async with AsyncExitStack() as stack:
        start = _Starting(bench, f"{_NAME}-one-missing", usual_s, stack)
        backends, router, starting = await start.begin(1)
        right = "Start with the shards that are there, and take the others in when they come."
        if not starting.done() or starting.exception():
            missing = starting.exception() if starting.done() else f"no HTTP answer in {start.patience_s:.0f} s"
            await backends[1].up()
            await asyncio.wait([starting])
            return Result(Word.UNSAFE, f"with one of two shards there it does not start: {missing}", right)
        await bench.until_serving(router.url)
        replies = [await bench.ask_as(router.url, f"missing.{number}") for number in range(_ASKED)]
        await backends[1].up()

        async def reaches(number: int) -> bool:
            await asyncio.gather(*(bench.ask_as(router.url, f"late.{number}.{part}") for part in range(_AT_ONCE)))
            return any(one.call.startswith("late.") for one in backends[1].deliveries)

        late = await until_used(reaches)
        joins = f"has requests {late:.1f} s after it is up" if late is not None else f"has none in {BACK_WITHIN_S:g} s"
        seen = f"with one of two shards there: {tally(replies)}; the other one {joins}"
        lost = [str(reply) for reply in replies if not reply.ok][:5]
        if bad := bench.flaws(replies):
            return Result(Word.UNSAFE, f"{seen}; {bad[0]}", right, lost)
        if late is None or lost:
            return Result(Word.BOUNDED, seen, right, lost)
        return safe(seen)


def first_line(error: Exception) -> str:
    """What went wrong, without the router's output."""
    return str(error).partition("\n")[0]
