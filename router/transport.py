"""The upstream side: the only file that opens connections to backends, and where the errors of that become ours.

One pool per shard, without a limit: a shard that hangs holds up nobody else's connections. Everything here belongs to
one event loop.
"""

import asyncio
import errno
import functools
import ssl
import time
from collections import deque
from types import TracebackType

from .failures import AttemptError, Outcome
from .upstream_connection import Connection, Response
from .urls import Endpoint

# vLLM closes an idle connection after 5 s; ours are gone well before that.
IDLE_S = 3.0
LATE_S = 0.02  # an event loop that is later than this is busy
OWN_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.ENOMEM})


@functools.cache
def tls_context() -> ssl.SSLContext:
    """The one context for all backends; making one takes milliseconds."""
    return ssl.create_default_context()


class Pool:
    """The connections to one backend. Close it when the backend is gone for good."""

    def __init__(self, endpoint: Endpoint, *, connect_timeout_s: float, max_body: int, keep: bool = True) -> None:
        self._endpoint = endpoint
        self._connect_timeout_s = connect_timeout_s
        self._max_body = max_body
        self._keep = keep
        self._idle: deque[Connection] = deque()
        self._open: dict[Connection, None] = {}  # in order: what is dropped together ends in the same order each time
        self._sweeper: asyncio.TimerHandle | None = None
        self.heard_at = float("-inf")  # when the last byte of an answer came, on time.monotonic()
        self._tls = tls_context() if endpoint.tls else None

    async def exchange(self, head: bytes, body: bytes, deadline: float, *, fresh: bool = False) -> Response:
        """One attempt. `deadline` is on time.monotonic(); `fresh` refuses pooled connections. Raises AttemptError."""
        connection = None if fresh else self._reusable()
        if connection is None:
            connection = await self._connect(deadline)
        return await connection.exchange(head, body, deadline)

    @property
    def connections(self) -> int:
        """Connections to the backend right now."""
        return len(self._open)

    def put_back(self, connection: Connection) -> None:
        """Called by a connection whose exchange is over."""
        if not self._keep:
            connection.abort()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(IDLE_S, self._sweep)

    def forget(self, connection: Connection) -> None:
        """Called by a connection that is gone."""
        self._open.pop(connection, None)

    def close(self) -> None:
        """Drop all connections, busy ones included."""
        self.drop(Outcome.BROKE, "the router dropped the connection")

    def drop(self, outcome: Outcome, detail: str) -> None:
        """Drop all connections; whoever waits on one gets an AttemptError of `outcome`."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._idle.clear()
        for connection in list(self._open):
            connection.interrupt(outcome, detail)

    def _reusable(self) -> Connection | None:
        oldest = time.monotonic() - IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.closed:
                continue
            if connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    def _sweep(self) -> None:
        self._sweeper = None
        oldest = time.monotonic() - IDLE_S
        while self._idle and (self._idle[0].closed or self._idle[0].idle_since < oldest):
            self._idle.popleft().abort()
        if self._idle:
            self._sweeper = asyncio.get_running_loop().call_later(IDLE_S, self._sweep)

    async def _connect(self, deadline: float) -> Connection:
        loop = asyncio.get_running_loop()
        connection = Connection(self, self._max_body)
        remaining = deadline - time.monotonic()
        try:
            async with _Patience(self._connect_timeout_s, max(remaining, 0.0)):
                await loop.create_connection(
                    lambda: connection, self._endpoint.host, self._endpoint.port, ssl=self._tls
                )
        except TimeoutError:
            connection.abort()
            outcome = Outcome.UNREACHABLE if remaining > self._connect_timeout_s else Outcome.OUT_OF_TIME
            raise AttemptError(outcome, "no connection in time") from None
        except (OSError, UnicodeError) as error:
            short = getattr(error, "errno", None) in OWN_SHORTAGES
            outcome = Outcome.EXHAUSTED if short else Outcome.UNREACHABLE
            raise AttemptError(outcome, f"cannot connect: {error}") from None
        except asyncio.CancelledError:
            connection.abort()
            raise
        self._open[connection] = None
        return connection


class _Patience:
    """Raises TimeoutError after some seconds, not counting those in which this loop was too busy to look at a socket.

    A burst of requests on a busy machine must not pass for shards that are gone. `at_most` seconds count in any case.
    """

    def __init__(self, seconds: float, at_most: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time() + at_most
        self._limit = asyncio.timeout(None)
        self._wait_until(self._loop.time() + seconds)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def _wait_until(self, when: float) -> None:
        when = min(when, self._last)
        self._timer = self._loop.call_at(when, self._due, when)

    def _due(self, when: float) -> None:
        now = self._loop.time()
        if now - when > LATE_S and now < self._last:
            self._wait_until(now + (now - when))
        else:
            self._limit.reschedule(now)
