"""Doing something with every shard again and again, each at its own pace: a slow one holds up no other."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence

from .events import LOG
from .shard import Shard

TURNS = 16  # in which the shards of a round are taken


class Rounds:
    """Starts `check` on each of `shards()` every `interval_s` seconds, unless its last one is still under way.

    Not on all at once: requests would wait meanwhile.
    """

    def __init__(
        self, shards: Callable[[], Sequence[Shard]], interval_s: float, check: Callable[[Shard], Awaitable[None]]
    ) -> None:
        self._shards = shards
        self._interval_s = interval_s
        self._check = check
        self._running: dict[Shard, asyncio.Task[None]] = {}
        self.delays = 0  # rounds that began far too late, since the whole process was held up

    async def run(self) -> None:
        """Go on until cancelled."""
        try:
            for turn in itertools.cycle(range(TURNS)):
                for shard in self._shards()[turn::TURNS]:
                    if shard not in self._running:
                        self._running[shard] = asyncio.create_task(self._checked(shard), name=f"probe {shard.url}")
                due = time.monotonic() + self._interval_s / TURNS
                await asyncio.sleep(self._interval_s / TURNS)
                self.delays += time.monotonic() > due + self._interval_s / 2
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _checked(self, shard: Shard) -> None:
        try:
            await self._check(shard)
        except Exception:  # noqa: BLE001  a probe must not end the probing
            LOG.exception("a probe of %s failed unexpectedly", shard.url)
        finally:
            self._running.pop(shard, None)
