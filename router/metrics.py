"""Prometheus metrics. The hot path only adds to plain numbers; they become metrics when somebody scrapes."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from .fleet import Fleet
from .health import State

# A generation takes from milliseconds to tens of minutes.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


@dataclass(slots=True)
class Tally:
    """What the router has answered since it started."""

    answers: dict[tuple[int | None, str], int] = field(default_factory=dict)  # (status, reason) -> count
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    seconds: float = 0.0
    in_flight: int = 0
    pairings: dict[str, int] = field(default_factory=dict)  # what became of prefill legs -> count

    def paired(self, result: str) -> None:
        """Count what became of the prefill half of a request."""
        self.pairings[result] = self.pairings.get(result, 0) + 1

    def answered(self, status: int | None, reason: str, elapsed_s: float) -> None:
        """Count one finished request; `status` is None when it was streamed or nobody was left to answer."""
        key = (status, reason)
        self.answers[key] = self.answers.get(key, 0) + 1
        self.buckets[bisect_left(BUCKETS_S, elapsed_s)] += 1
        self.seconds += elapsed_s


class RouterCollector(Collector):
    """Reads the router's numbers at scrape time."""

    def __init__(self, fleet: Fleet, tally: Tally, prefill: Fleet | None = None) -> None:
        self._fleets = (fleet,) if prefill is None else (fleet, prefill)
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield self._answers()
        yield self._duration()
        yield GaugeMetricFamily("gym_router_in_flight", "Client requests under way.", self._tally.in_flight)
        yield from self._pressure()
        if len(self._fleets) > 1:
            yield self._prefill_legs()
        yield from self._shards()

    def _answers(self) -> Metric:
        family = CounterMetricFamily("gym_router_answers", "Finished requests.", labels=["status", "reason"])
        for (status, reason), count in list(self._tally.answers.items()):
            family.add_metric(["none" if status is None else str(status), reason], count)
        return family

    def _prefill_legs(self) -> Metric:
        why = "What became of the prefill half of requests."
        family = CounterMetricFamily("gym_router_prefill_legs", why, labels=["result"])
        for result, count in list(self._tally.pairings.items()):
            family.add_metric([result], count)
        return family

    def _duration(self) -> Metric:
        family = HistogramMetricFamily("gym_router_request_seconds", "From the request's head to its answer.")
        edges = [*(str(edge) for edge in BUCKETS_S), "+Inf"]
        family.add_metric([], list(zip(edges, accumulate(self._tally.buckets), strict=True)), self._tally.seconds)
        return family

    def _pressure(self) -> Iterator[Metric]:
        pressure = self._fleets[0].pressure
        why = "1 if the caches are full and hit ever less: reduce concurrent rollouts."
        yield GaugeMetricFamily("gym_router_fleet_full", why, float(pressure.full))
        if pressure.usage is not None:
            yield GaugeMetricFamily("gym_router_kv_cache_usage", "Mean over the engines, 0 to 1.", pressure.usage)
        if pressure.hit_rate is not None:
            why = "Of the engines' prefix caches, over the last minute."
            yield GaugeMetricFamily("gym_router_prefix_hit_rate", why, pressure.hit_rate)

    def _shards(self) -> Iterator[Metric]:
        attempts = CounterMetricFamily("gym_router_attempts", "Attempts by outcome.", labels=["shard", "outcome"])
        load = GaugeMetricFamily("gym_router_shard_in_flight", "Requests on the shard.", labels=["shard"])
        sockets = GaugeMetricFamily("gym_router_shard_connections", "Open connections.", labels=["shard"])
        states = GaugeMetricFamily("gym_router_shard_state", "1 for the state it is in.", labels=["shard", "state"])
        strikes = GaugeMetricFamily("gym_router_shard_strikes", "Strikes not forgiven.", labels=["shard"])
        for shard in (shard for fleet in self._fleets for shard in fleet.shards):
            for outcome, count in shard.outcomes.items():
                attempts.add_metric([shard.url, outcome.name.lower()], count)
            load.add_metric([shard.url], shard.in_flight)
            sockets.add_metric([shard.url], shard.pool.connections)
            strikes.add_metric([shard.url], len(shard.record.strikes))
            for state in State:
                states.add_metric([shard.url, state.value], float(shard.record.state is state))
        yield from (attempts, load, sockets, states, strikes)


def exposition(collector: Collector) -> bytes:
    """The text format, from a registry of the router's own: nothing of the host process is in it."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)
