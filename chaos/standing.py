"""The router under test behind its hops, and how long it stands: for one case, or for as many as want the same.

A router that needs long to start is kept from case to case, as long as it is found well after each.
"""

from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from .faults.base import Target
from .under_test import RouterUnderTest


@dataclass
class Standing:
    """A router that serves, the URLs at which it meets its shards, and what faults may do to each of them."""

    targets: Sequence[Target]
    routes: Sequence[str]
    router: RouterUnderTest
    well: bool = True  # whether all that was done to it is over


class Standings:
    """What stands. With `keep` it is left standing for the next case that asks by the same key, if it is well."""

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._kept: dict[Hashable, tuple[Standing, AsyncExitStack]] = {}

    @asynccontextmanager
    async def open(
        self, key: Hashable, build: Callable[[], AbstractAsyncContextManager[Standing]]
    ) -> AsyncIterator[Standing]:
        """One for a case, which has to say at its end that it is `well`."""
        if key not in self._kept:
            stack = AsyncExitStack()
            self._kept[key] = await stack.enter_async_context(build()), stack
        standing, _ = self._kept[key]
        standing.well = False
        try:
            yield standing
        finally:
            if not (self._keep and standing.well):
                await self._end(key)

    async def close(self) -> None:
        """End all that stands."""
        for key in tuple(self._kept):
            await self._end(key)

    async def _end(self, key: Hashable) -> None:
        _, stack = self._kept.pop(key)
        await stack.aclose()
