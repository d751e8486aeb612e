"""Reads the engines' KV usage for the policy, off the path of requests, and says when the fleet is over-full."""

import re
from collections.abc import Callable, Mapping

from .events import LOG, Journal
from .fleet import Fleet
from .policies import Sample
from .probes import Finding, ask
from .rounds import Rounds
from .shard import Shard
from .transport import Pool
from .urls import Endpoint

INTERVAL_S = 5.0
_SERIES = re.compile(
    rb"\nvllm:(kv_cache_usage_perc|num_requests_waiting|prefix_cache_queries_total|prefix_cache_hits_total)"
    rb"(?:\{[^}\n]*\})? ([-+.0-9eE]+)"
)
_CACHE = re.compile(rb"\nvllm:cache_config_info\{([^\n]*)\}")
_BLOCKS = {name: re.compile(rb'\b%b="(\d+)"' % name) for name in (b"block_size", b"num_gpu_blocks")}


def read_sample(status: int, body: bytes) -> Sample | None:
    """What an answer to GET /metrics says of the KV cache; None if nothing. Several engines of one server add up."""
    if status != 200:  # noqa: PLR2004
        return None
    body = b"\n" + body
    series: dict[bytes, list[float]] = {}
    for name, value in _SERIES.findall(body):
        series.setdefault(name, []).append(float(value))
    usages = series.get(b"kv_cache_usage_perc")
    if not usages:
        return None
    return Sample(
        usage=sum(usages) / len(usages),
        waiting=int(_total(series, b"num_requests_waiting")),
        capacity=_capacity(body),
        queries=_total(series, b"prefix_cache_queries_total"),
        hits=_total(series, b"prefix_cache_hits_total"),
    )


def _total(series: Mapping[bytes, list[float]], name: bytes) -> float:
    return sum(series.get(name, ()))


def _capacity(body: bytes) -> int | None:
    tokens = 0
    for labels in _CACHE.findall(body):
        size, blocks = (pattern.search(labels) for pattern in _BLOCKS.values())
        if size is None or blocks is None:
            return None
        tokens += int(size[1]) * int(blocks[1])
    return tokens or None


class KvScrape:
    """Scrapes every member."""

    def __init__(self, fleet: Fleet, make_pool: Callable[[Endpoint], Pool], journal: Journal) -> None:
        self._fleet = fleet
        self._make_pool = make_pool
        self._journal = journal
        self._full = False

    async def run(self) -> None:
        """Scrape until cancelled."""
        await Rounds(lambda: self._fleet.members, INTERVAL_S, self.check).run()

    async def check(self, shard: Shard) -> None:
        """Scrape one shard once, and tell the policy. What does not answer says nothing: its last sample grows old."""
        pool = self._make_pool(shard.endpoint)
        try:
            answer = await ask(shard, pool, b"GET", b"/metrics", timeout_s=INTERVAL_S)
        finally:
            pool.close()
        sample = None if isinstance(answer, Finding) else read_sample(answer.status, answer.body)
        if sample is not None:
            self._fleet.scraped(shard, sample)
            self._say()

    def _say(self) -> None:
        pressure = self._fleet.pressure
        if pressure.full is self._full:
            return
        self._full = pressure.full
        fields = {"full": pressure.full, "kv_cache_usage": pressure.usage, "prefix_hit_rate": pressure.hit_rate}
        if pressure.full:
            LOG.warning("the fleet's KV caches are over-full: reduce concurrent rollouts", extra={"fields": fields})
        else:
            LOG.info("the fleet's KV caches are no longer over-full", extra={"fields": fields})
        self._journal.write("fleet_full", fields)
