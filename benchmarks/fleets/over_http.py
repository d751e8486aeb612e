"""A fleet of servers behind a real gym-router: one run for each policy, measured by the clients and by `/metrics`."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import mean

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from gymproof.chaos.asking import MODEL
from gymproof.chaos.choices import GYM_ROUTER
from gymproof.chaos.fleet import LocalFleet
from gymproof.chaos.guard import Guard
from gymproof.chaos.under_test import RouterUnderTest, Wiring

from .http_work import Clients, HttpWork, Seen
from .results import Column

_COUNTERS = {
    "hits": "vllm:prefix_cache_hits_total",
    "queries": "vllm:prefix_cache_queries_total",
    "queue_s": "vllm:request_queue_time_seconds_sum",
    "queued": "vllm:request_queue_time_seconds_count",
}
_RUNNING = "vllm:num_requests_running"
_READY_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class HttpResult:
    """One run. `hit_rates` are the shards'."""

    policy: str
    repetition: int
    column: Column
    hit_rates: list[float]
    failed: int


async def compare(
    fleet: LocalFleet, policies: Sequence[str], work: HttpWork, repetitions: int, folder: Path, done: Callable[[], None]
) -> list[HttpResult]:
    """Every policy in every repetition, in turn, so that a busy machine is busy for all; `done` hears of each run."""
    results = []
    async with fleet:
        for repetition in range(repetitions):
            for policy in policies:
                results.append(await measure(fleet, policy, work, repetition, folder / f"{repetition}-{policy}"))
                done()
    return results


async def measure(fleet: LocalFleet, policy: str, work: HttpWork, repetition: int, folder: Path) -> HttpResult:
    """One policy, on a router and servers that have just been started: every run begins with empty caches."""
    await _restart(fleet)
    urls = [shard.url for shard in fleet.shards]
    folder.mkdir(parents=True)  # noqa: ASYNC240  at once
    wiring = Wiring(urls, deadline_s=120.0, max_attempts=2, folder=folder)
    async with AsyncExitStack() as stack:
        guard = stack.enter_context(Guard())
        router = await stack.enter_async_context(RouterUnderTest(f"{GYM_ROUTER} --policy {policy}", wiring, guard))
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        clients = Clients(router.url, MODEL, work, repetition)
        async with asyncio.TaskGroup() as tasks:
            slots = [tasks.create_task(clients.slot(session)) for _ in range(work.rollouts)]
            metrics = await _watch(session, urls, clients, work)
            for slot in slots:
                slot.cancel()
    return _result(policy, repetition, clients.seen, metrics, work.end - work.warm_up)


async def _restart(fleet: LocalFleet) -> None:
    async with asyncio.TaskGroup() as starts:
        for shard in fleet.shards:
            shard.close()
            starts.create_task(shard.ensure_ready(_READY_WITHIN_S))


@dataclass(frozen=True, slots=True)
class _Metrics:
    """Each shard's counters over the window, and the fleet's running requests, one sample a second."""

    grown: list[dict[str, float]]
    running: list[float]


async def _watch(session: aiohttp.ClientSession, urls: Sequence[str], clients: Clients, work: HttpWork) -> _Metrics:
    """Let a run warm up, then count and look until its end."""
    await asyncio.sleep(work.warm_up)
    clients.counting = True
    before = await _scrape(session, urls)
    running = []
    for _ in range(round(work.end - work.warm_up)):
        await asyncio.sleep(1.0)
        running.append(sum(shard[_RUNNING] for shard in await _scrape(session, urls)))
    after = await _scrape(session, urls)
    clients.counting = False
    grown = [
        {name: new.get(name, 0.0) - old.get(name, 0.0) for name in new} for old, new in zip(before, after, strict=True)
    ]
    return _Metrics(grown, running)


async def _scrape(session: aiohttp.ClientSession, urls: Sequence[str]) -> list[dict[str, float]]:
    return [await _scrape_one(session, url) for url in urls]


async def _scrape_one(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    async with session.get(f"{url}/metrics") as response:
        text = await response.text()
    wanted = {_RUNNING, *_COUNTERS.values()}
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples if sample.name in wanted}


def _result(policy: str, repetition: int, seen: Seen, metrics: _Metrics, seconds: float) -> HttpResult:
    answers = seen.answers
    if not answers:
        raise ValueError(
            f"{policy}: no request was answered in the {seconds:g} s that were measured; {seen.failed} failed"
        )
    total = {name: sum(shard.get(metric, 0.0) for shard in metrics.grown) for name, metric in _COUNTERS.items()}
    spread = [(one.e2e - one.first_token) / (one.answer - 1) for one in answers if one.answer > 1]
    column = Column(
        tokens_per_s=sum(one.prompt + one.answer for one in answers) / seconds,
        requests_per_s=len(answers) / seconds,
        hit_rate=_share(total["hits"], total["queries"]),
        ttft_s=mean(one.first_token for one in answers),
        tpot_s=mean(spread) if spread else nan,
        queue_s=_share(total["queue_s"], total["queued"]),
        running=mean(metrics.running),
        e2e_s=mean(one.e2e for one in answers),
    )
    rates = [_share(shard.get(_COUNTERS["hits"], 0.0), shard.get(_COUNTERS["queries"], 0.0)) for shard in metrics.grown]
    return HttpResult(policy, repetition, column, rates, seen.failed)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else nan
