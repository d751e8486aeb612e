"""`FleetController`: the loop with which a training driver says who serves.

Each tick asks every shard whether it lives, takes what the router saw of live traffic into the ledger, and pushes the
full set of those that may serve when it has changed, or when the router is another one than took the last push. No
call waits without a bound, and one that fails is made again at the next tick. What ends a run is a fleet of which
nothing serves for too long, or a router that will never come back.

The router is anything with the calls of `RouterHandle`: `LocalRouter` here, `actor.ActorRouter` on Ray.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from .events import LOG
from .failures import AttemptError
from .headers import request_head
from .health import State
from .impl import GenerationRouterImpl
from .ledger import Ledger
from .transport import Pool
from .urls import parse_backend

Probe = Callable[[str], Awaitable[bool]]
MAX_PROBE_ANSWER = 1 << 20
LONGEST_PROBE_S = 60.0


class RouterUnavailableError(RuntimeError):
    """The router cannot be reached now; the same call may work later."""


class RouterLostError(RuntimeError):
    """The router is gone and nothing will start it again: whoever holds its URL waits for ever."""


class FleetExhaustedError(RuntimeError):
    """No shard of the fleet has served for too long; the message has the state of each."""


class RouterHandle(Protocol):
    """What a controller asks of a router. Each call raises RouterUnavailableError or RouterLostError."""

    async def instance_id(self) -> str:
        """Another one after each restart."""

    async def set_serving_backends(self, urls: list[str]) -> None:
        """Replace the set that may serve, by the full set."""

    async def announce_pause(self) -> None:
        """The engines are paused: silence is nobody's fault."""

    async def announce_resume(self) -> None:
        """The engines generate again."""

    async def drain_backend_outcomes(self) -> dict[str, tuple[int, int]]:
        """Per backend (successes, failures) since the last call."""


class LocalRouter:
    """A router in this process, as a RouterHandle."""

    def __init__(self, router: GenerationRouterImpl) -> None:
        self._router = router

    async def instance_id(self) -> str:
        """See RouterHandle."""
        return "local"

    async def set_serving_backends(self, urls: list[str]) -> None:
        """See RouterHandle."""
        await asyncio.to_thread(self._router.set_serving_backends, urls)

    async def announce_pause(self) -> None:
        """See RouterHandle."""
        await asyncio.to_thread(self._router.announce_pause)

    async def announce_resume(self) -> None:
        """See RouterHandle."""
        await asyncio.to_thread(self._router.announce_resume)

    async def drain_backend_outcomes(self) -> dict[str, tuple[int, int]]:
        """See RouterHandle."""
        return await asyncio.to_thread(self._router.drain_backend_outcomes)


async def ask_health(url: str) -> bool:
    """The default probe: whether the shard answers `GET /health` at all, be it with a 404."""
    endpoint = parse_backend(url)
    pool = Pool(endpoint, connect_timeout_s=LONGEST_PROBE_S, max_body=MAX_PROBE_ANSWER, keep=False)
    try:
        head = request_head(b"GET", endpoint.base_path + b"/health", endpoint.authority, b"", 0)
        answer = await pool.exchange(head, b"", time.monotonic() + LONGEST_PROBE_S)
    except AttemptError:
        return False
    finally:
        pool.close()
    return answer.status < 500  # noqa: PLR2004


class FleetController:
    """Keeps the ledger of one fleet and one router's set in step with it.

    `urls` are the shards, as the router got them. `probe` says whether one lives; what it raises, and no answer within
    `probe_timeout_s`, is a no. `eject_after` strikes, or as many unanswered probes twice, make a shard DEAD. After
    `exhausted_after_s` without a shard that may serve, the loop ends in FleetExhaustedError; a training driver that
    restarts its shards gives them time for that here.

    Everything belongs to one event loop. Raises BadBackendUrlError.
    """

    def __init__(
        self,
        router: RouterHandle,
        urls: Sequence[str],
        *,
        probe: Probe = ask_health,
        probe_timeout_s: float = 1.0,
        call_timeout_s: float = 5.0,
        eject_after: int = 3,
        exhausted_after_s: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._router = router
        self._probe = probe
        self._probe_timeout_s = probe_timeout_s
        self._call_timeout_s = call_timeout_s
        self._exhausted_after_s = exhausted_after_s
        self._clock = clock
        self._ledger = Ledger(urls, eject_after=eject_after, now=clock())
        self._drained_at = clock()
        self._pushing = asyncio.Lock()
        self._paused = False
        # What the router was told last, and the instance of it that was.
        self._announced: tuple[str, bool] | None = None
        self._pushed: tuple[str, list[str]] | None = None

    def states(self) -> dict[str, State]:
        """Every shard's state."""
        return self._ledger.states()

    async def report_restart(self, url: str) -> None:
        """A shard is being started again: it serves no more. Raises KeyError for a URL that is no shard."""
        self._ledger.restarted(url, self._clock())
        await self._best_effort(self._push())

    async def report_refit(self, url: str) -> None:
        """A shard holds the current weights and may serve. Raises KeyError for a URL that is no shard."""
        self._ledger.refitted(url, self._clock())
        await self._best_effort(self._push())

    async def announce_pause(self) -> None:
        """Before the engines are paused, as for a weight update: until `announce_resume`, silence ejects nobody."""
        self._paused = True
        await self._best_effort(self._push())

    async def announce_resume(self) -> None:
        """Once the engines generate again."""
        self._paused = False
        await self._best_effort(self._push())

    async def run(self, every_s: float = 1.0) -> None:
        """Tick every `every_s` seconds until cancelled. Raises what `tick` raises."""
        while True:
            due = self._clock() + every_s
            await self.tick()
            await asyncio.sleep(max(due - self._clock(), 0.0))

    async def tick(self) -> None:
        """Push, drain, probe, push what has changed. Raises FleetExhaustedError and RouterLostError, nothing else."""
        now = self._clock()
        probing = asyncio.ensure_future(self._probe_all())
        try:
            await self._best_effort(self._push_and_drain(now))
            for url, alive in (await probing).items():
                if alive or not self._paused:
                    self._ledger.probed(url, now, alive=alive)
        finally:
            probing.cancel()
        await self._best_effort(self._push())
        idle_s = self._ledger.exhausted_for(self._clock())
        if idle_s > self._exhausted_after_s:
            fleet = self._ledger.describe(self._clock())
            raise FleetExhaustedError(f"no shard has served for {idle_s:.0f} s: {fleet}")

    async def _probe_all(self) -> dict[str, bool]:
        urls = self._ledger.urls
        return dict(zip(urls, await asyncio.gather(*map(self._lives, urls)), strict=True))

    async def _lives(self, url: str) -> bool:
        try:
            async with asyncio.timeout(self._probe_timeout_s):
                return await self._probe(url)
        except Exception as error:  # noqa: BLE001  a driver's own probe may raise anything
            LOG.info("no answer to a probe", extra={"fields": {"shard": url, "error": repr(error)}})
            return False

    async def _push_and_drain(self, now: float) -> None:
        await self._push()  # first of all: in a router that was restarted, requests wait for it
        outcomes = await self._router.drain_backend_outcomes()
        since, self._drained_at = self._drained_at, now
        self._ledger.drained(outcomes, since, now)

    async def _push(self) -> None:
        """Push what this instance of the router has not been told yet: a restarted one knows of no push, or pause."""
        async with self._pushing:
            instance = await self._router.instance_id()
            pause, members = (instance, self._paused), (instance, self._ledger.serving)
            if pause != self._announced:
                self._announced = None  # from here on it is not known what the router holds
                await (self._router.announce_pause() if pause[1] else self._router.announce_resume())
                self._announced = pause
            if members != self._pushed:
                self._pushed = None
                await self._router.set_serving_backends(members[1])
                self._pushed = members

    async def _best_effort(self, call: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._call_timeout_s):
                await call
        except (RouterUnavailableError, TimeoutError) as error:
            LOG.warning("the router does not answer its controller", extra={"fields": {"error": str(error)}})
