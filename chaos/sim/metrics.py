"""The text of `/metrics`, with vLLM's names and labels."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)

_DEEPEST = 2  # sleep level

_GAUGES = {  # name: (key of the engine's stats, help)
    "vllm:num_requests_running": ("running", "Number of requests in model execution batches."),
    "vllm:num_requests_waiting": ("waiting", "Number of requests waiting to be processed."),
    "vllm:kv_cache_usage_perc": ("kv_usage", "KV-cache usage. 1 means 100 percent usage."),
}
_COUNTERS = {
    "vllm:prefix_cache_queries": ("prefix_queries", "Prefix cache queries, in tokens."),
    "vllm:prefix_cache_hits": ("prefix_hits", "Prefix cache hits, in tokens."),
    "vllm:prompt_tokens_cached": ("prefix_hits", "Prompt tokens found in the cache."),
    "vllm:prompt_tokens": ("prompt_tokens", "Number of prefill tokens processed."),
    "vllm:generation_tokens": ("generation_tokens", "Number of generation tokens processed."),
}

_CONNECTOR_COUNTERS = {  # with a KV connector
    "vllm:nixl_num_kv_expired_reqs": ("kv_expired", "Requests whose KV blocks expired before they were read."),
    "vllm:nixl_num_failed_transfers": ("failed_transfers", "Number of failed NIXL KV cache transfers."),
}


class Histogram:
    """Seconds, counted in fixed buckets."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._counts = [0] * (len(_BUCKETS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(_BUCKETS, seconds)] += 1
        self._sum += seconds

    def lines(self, labels: str) -> Iterator[str]:
        """The histogram in Prometheus text."""
        yield from _header(self._name, "histogram", self._text)
        total = 0
        for bound, count in zip([*_BUCKETS, "+Inf"], self._counts, strict=True):
            total += count
            yield f'{self._name}_bucket{{{labels},le="{bound}"}} {total}.0'
        yield f"{self._name}_count{{{labels}}} {total}.0"
        yield f"{self._name}_sum{{{labels}}} {self._sum}"


def render(stats: dict[str, Any], histograms: list[Histogram], model: str, sleep_level: int | None = None) -> bytes:
    """The whole page. `stats` are the engine's last ones, so they stand still while it is stopped."""
    labels = f'engine="0",model_name="{model}"'
    return "\n".join([*_lines(stats, histograms, labels), *_sleep_state(sleep_level, labels), ""]).encode()


def _sleep_state(level: int | None, labels: str) -> Iterator[str]:
    """The level at which the engine sleeps, None while it is awake."""
    states = {"awake": level is None, "weights_offloaded": level == 1, "discard_all": level == _DEEPEST}
    yield from _header("vllm:engine_sleep_state", "gauge", "Engine sleep state.")
    for state, on in states.items():
        yield f'vllm:engine_sleep_state{{{labels},sleep_state="{state}"}} {float(on)}'


def _lines(stats: dict[str, Any], histograms: list[Histogram], labels: str) -> Iterator[str]:
    for name, (key, text) in _GAUGES.items():
        yield from _header(name, "gauge", text)
        yield f"{name}{{{labels}}} {float(stats[key])}"
    reasons = {"capacity": stats["waiting"], "deferred": 0}
    yield from _header("vllm:num_requests_waiting_by_reason", "gauge", "Waiting requests by reason.")
    for reason, count in reasons.items():
        yield f'vllm:num_requests_waiting_by_reason{{{labels},reason="{reason}"}} {float(count)}'
    connector = {name: row for name, row in _CONNECTOR_COUNTERS.items() if row[0] in stats}
    for name, (key, text) in {**_COUNTERS, **connector}.items():
        yield from _header(f"{name}_total", "counter", text)
        yield f"{name}_total{{{labels}}} {float(stats[key])}"
    yield from _header("vllm:num_preemptions_total", "counter", "Cumulative number of preemptions.")
    yield f"vllm:num_preemptions_total{{{labels}}} 0.0"
    yield from _header("vllm:request_success_total", "counter", "Count of successfully processed requests.")
    for reason, count in stats["finished"].items():
        yield f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {float(count)}'
    for histogram in histograms:
        yield from histogram.lines(labels)


def _header(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
