"""gym-router with one mistake in it, as cores for runs in virtual time."""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from unittest import mock

from gymproof.router.embedded import serve_on
from gymproof.router.failures import VERDICTS, Outcome
from gymproof.router.shard import Load
from gymproof.router.upstream_connection import Connection


@contextmanager
def without_a_row(outcome):
    """One line of the answer table is missing."""
    with mock.patch.dict(VERDICTS):
        del VERDICTS[outcome]
        yield


@contextmanager
def counter_released_twice():
    """A request is taken off its shard's count twice."""

    def release_twice(self, _kind, _error, _trace):
        self.value -= 2

    with mock.patch.object(Load, "__exit__", release_twice):
        yield


@contextmanager
def cancel_forgotten():
    """A request whose client has left goes on at its shard."""
    exchange = Connection.exchange

    async def go_on(self, head, body, deadline):
        task = asyncio.ensure_future(exchange(self, head, body, deadline))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    with mock.patch.object(Connection, "exchange", go_on):
        yield


BUGS = {
    "counter": counter_released_twice,
    "cancel": cancel_forgotten,
    **{f"row_{outcome.name}": (lambda outcome=outcome: without_a_row(outcome)) for outcome in Outcome},
}


@asynccontextmanager
async def dead(listener, backends, **settings):
    """A router whose shards never serve again once they have failed."""
    async with serve_on(listener, backends, readmit="refit", eject_after=1, **settings) as router:
        yield router


def core(bug):
    """A core with this bug."""

    @asynccontextmanager
    async def serve(listener, backends, **settings):
        with BUGS[bug]():
            async with serve_on(listener, backends, **settings) as router:
                yield router

    return serve
