"""What has to stand before a case can run, and comes down after it.

A `Session` holds what is dear and shared by cases (the fleet, the Toxiproxy server); a `Stage` is one case's own
router, hops, wiretap and client. Both are context managers: what they start, they stop.
"""

import dataclasses
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from .choices import Setup, contract_client, resolve_client, without_prefill
from .clients import CLIENTS, GymClient, open_client
from .faults.base import Layer, RouterHandle, ShardProcess, Target
from .fleet import LocalFleet
from .fleets import FLEETS
from .guard import Guard
from .history import History, Limits, Served
from .interposer import Interposer
from .recording import Recording
from .scenario import Case, FleetTable, ScenarioError
from .standing import Standing, Standings
from .toxiproxy import ToxiproxyServer
from .under_test import RouterUnderTest, Wiring, check_command
from .wiretap import Wiretap
from .witness import BASELINE_ASKS

_READY_WITHIN_S = 20.0
_CUT_OFF_S = 0.25  # past the latest moment for an answer, so that one that is cut off is late for sure


class Session:
    """The fleet and the Toxiproxy server, started at first need and shared by cases.

    Raises ScenarioError for a fleet or a client that does not exist, or cannot be had, and RouterError for a router
    command that cannot be started.
    """

    def __init__(self, setup: Setup) -> None:
        for what, name, known in (
            ("fleet", setup.fleet, FLEETS),
            ("client", setup.client, {"auto": None, **CLIENTS}),
        ):
            if name not in known:
                raise ScenarioError(f"unknown {what} {name!r}; known: {', '.join(known)}")
        check_command(setup.router_cmd)
        self.setup = setup
        self._make_fleet = FLEETS[setup.fleet](setup)
        self._stack = AsyncExitStack()
        self._fleets: dict[FleetTable, LocalFleet] = {}
        self._toxiproxy: ToxiproxyServer | None = None
        self._prepared: set[str] = set()  # clients
        self.standings = Standings(keep=setup.keep_router)

    async def __aenter__(self) -> Self:
        self.guard = self._stack.enter_context(Guard())
        if self.setup.toxiproxy_url:
            await self.toxiproxy()  # a server that was named has to be there, before anything else is done
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.standings.close()
        finally:
            await self._stack.aclose()

    def folder(self, name: str) -> Path:
        """A new folder for the records of one case: those of an earlier one of that name stay."""
        for number in itertools.count(1):
            folder = self.setup.out / (name if number == 1 else f"{name}-{number}")
            with suppress(FileExistsError):
                folder.mkdir(parents=True)
                return folder
        raise AssertionError

    def fleet_table(self, table: FleetTable) -> FleetTable:
        """A scenario's fleet as it can be had here, of the size that was chosen if one was. Raises ScenarioError."""
        if table.prefill and (why := without_prefill(self.setup.fleet, self.setup.router_cmd)):
            raise ScenarioError(f"fleet.prefill: {why}")
        table = table.real() if self.setup.fleet == "vllm" else table
        return table.model_copy(update={"shards": self.setup.shards or table.shards})

    async def fleet(self, table: FleetTable) -> LocalFleet:
        """A fleet as the table says, with every shard serving."""
        if table not in self._fleets:
            folder = self.folder("fleet")
            self._fleets[table] = await self._stack.enter_async_context(self._make_fleet(table, folder))
        fleet = self._fleets[table]
        for shard in fleet.shards:
            await shard.ensure_ready(_READY_WITHIN_S)
        return fleet

    async def prepare_client(self, name: str) -> None:
        """Have a client import what it needs: for these seconds no relay of this process would answer a router."""
        if name not in self._prepared:
            async with open_client(name, "http://127.0.0.1/v1"):
                self._prepared.add(name)

    async def toxiproxy(self) -> ToxiproxyServer:
        """The real Toxiproxy server. Raises ToxiproxyUnavailableError, saying how to get it."""
        if self._toxiproxy is None:
            self._toxiproxy = await self._stack.enter_async_context(ToxiproxyServer(self.setup.toxiproxy_url))
        return self._toxiproxy

    async def versions(self) -> dict[str, str]:
        """Of the servers that are started beside the fleet."""
        return {} if self._toxiproxy is None else {"toxiproxy-server": await self._toxiproxy.version()}


class ShardOnStage(ShardProcess, Protocol):
    """A shard, as the runner sees it."""

    generation: int

    def in_flight(self) -> int:
        """Generations begun and not ended."""

    def begun(self, calls: str, since: float) -> int:
        """Generations of calls whose tag begins with `calls` that have reached it since that moment."""


class FleetOnStage(Protocol):
    """A fleet, as the runner sees it."""

    @property
    def pace(self) -> float:
        """How many times as slow as the simulated one it is."""

    @property
    def shards(self) -> Sequence[ShardOnStage]:
        """Its shards."""

    def served(self) -> list[Served]:
        """What every shard was asked so far."""


@dataclass
class Stage:
    """One case, standing: what the runner acts on and records into."""

    case: Case
    fleet: FleetOnStage
    targets: Sequence[Target]
    routes: Sequence[str]
    router: RouterHandle
    entry_url: str  # where clients meet the router: its wiretap
    client: GymClient
    history: History
    generations: Sequence[int]
    batch_every_s: float = 0.1  # between two looks at whether the fleet has recovered
    witness_asks: int = BASELINE_ASKS


@asynccontextmanager
async def set_stage(session: Session, case: Case, recording: Recording) -> AsyncIterator[Stage]:
    """Build the hops that the case's faults need, the router behind a wiretap, and a client."""
    table = session.fleet_table(case.scenario.fleet)
    fleet = await session.fleet(table)
    case = case.fitted(table, fleet.pace)
    limits = _limits(session.setup, case)
    await session.prepare_client(limits.client)
    build = partial(_stand, session, fleet, case, _wiring(limits, recording.folder))
    async with session.standings.open((table, limits, case.hops), build) as standing, AsyncExitStack() as stack:
        logs = [shard.log for shard in fleet.shards]
        history = recording.begin(case, limits, logs, {**fleet.versions, **await session.versions()})
        tap = await stack.enter_async_context(Wiretap(standing.router.port, history.add))
        patience_s = limits.deadline_s + limits.grace_s + _CUT_OFF_S
        client = await stack.enter_async_context(
            open_client(limits.client, f"{tap.url}/v1", recording.say, answer_within_s=patience_s)
        )
        yield Stage(
            case=case,
            fleet=fleet,
            targets=standing.targets,
            routes=standing.routes,
            router=standing.router,
            entry_url=tap.url,
            client=client,
            history=history,
            generations=[shard.generation for shard in fleet.shards],
        )
        standing.well = history.recovery is not None and history.recovery.recovered is not None


@asynccontextmanager
async def _stand(session: Session, fleet: LocalFleet, case: Case, wiring: Wiring) -> AsyncIterator[Standing]:
    """The hops in front of the shards, and the router in front of them, serving."""
    setup = session.setup
    async with AsyncExitStack() as stack:
        fronts = [await _front(stack, session, shard, case) for shard in fleet.shards]
        routes, prefill = [route for _, route in fronts], case.scenario.fleet.prefill
        wiring = dataclasses.replace(wiring, backends=routes[prefill:], prefill=routes[:prefill])
        router = await stack.enter_async_context(
            RouterUnderTest(setup.router_cmd, wiring, session.guard, start_within_s=setup.start_within_s)
        )
        await router.serves(setup.start_within_s)  # one that does not is judged by what becomes of its rollouts
        yield Standing([target for target, _ in fronts], routes, router)


def _limits(setup: Setup, case: Case) -> Limits:
    """What is promised of this case; `case` is fitted to its fleet."""
    scenario = case.scenario
    return Limits(
        shards=scenario.fleet.shards,
        prefill=scenario.fleet.prefill,
        client=resolve_client(setup.client if setup.client != "auto" else scenario.load.client),
        seed=setup.seed,
        **dict(scenario.limits),
    )


def _wiring(limits: Limits, folder: Path) -> Wiring:
    """What the router is told, but for its shards."""
    return Wiring(
        backends=(),
        deadline_s=limits.deadline_s,
        max_attempts=limits.max_attempts,
        folder=folder,
        stall_after_s=limits.stall_after_s,
        client=contract_client(limits.client),
    )


async def _front(stack: AsyncExitStack, session: Session, shard: ShardProcess, case: Case) -> tuple[Target, str]:
    """The hops in front of one shard, and the URL at which the router meets the first of them."""
    target, route = Target(shard), shard.url
    if Layer.TOXIC in case.hops:
        server = await session.toxiproxy()
        toxics = await stack.enter_async_context(server.proxy(_port(route), f"{case.name}-{shard.index}"))
        target, route = dataclasses.replace(target, toxics=toxics), toxics.url
    if Layer.SCRIPT in case.hops:
        interposer = await stack.enter_async_context(Interposer(_port(route)))
        target = dataclasses.replace(target, interposer=interposer)
        route = f"http://127.0.0.1:{interposer.port}"
    return target, route


def _port(url: str) -> int:
    return int(url.rsplit(":", 1)[1])
