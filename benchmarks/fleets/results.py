"""What one run came to: the document's eight metrics, what the targets need, and how throughput and hit rate went."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, quantiles
from typing import NamedTuple

from .simulation import Experiment
from .tally import BUCKET_S, Tally


@dataclass(frozen=True, slots=True)
class Column:
    """The document's table, one column. Tokens are prompt and answer; times in seconds, means over requests."""

    tokens_per_s: float
    requests_per_s: float
    hit_rate: float
    ttft_s: float
    tpot_s: float
    queue_s: float
    running: float
    e2e_s: float


class Metric(NamedTuple):
    """One of the document's metrics: a heading with its unit, and how a value is shown."""

    heading: str
    show: Callable[[float], str]


METRICS = {
    "tokens_per_s": Metric("k tok/s", lambda value: f"{value / 1e3:.1f}"),
    "requests_per_s": Metric("req/s", lambda value: f"{value:.2f}"),
    "hit_rate": Metric("hit rate", lambda value: f"{value:.3f}"),
    "ttft_s": Metric("TTFT s", lambda value: f"{value:.2f}"),
    "tpot_s": Metric("TPOT ms", lambda value: f"{value * 1e3:.1f}"),
    "queue_s": Metric("queue ms", lambda value: f"{value * 1e3:.0f}"),
    "running": Metric("running", lambda value: f"{value:.1f}"),
    "e2e_s": Metric("e2e s", lambda value: f"{value:.1f}"),
}


@dataclass(frozen=True, slots=True)
class Result:
    """One run. `ceiling` is the hit rate of one cache that forgets nothing: all but the new tokens, in whole hits."""

    experiment: str
    policy: str
    seed: int
    column: Column
    p99_e2e_s: float
    ceiling: float
    worst_hit_rate: float
    moves: float  # share of the turns that went elsewhere than the one before
    preemptions: int
    repeats: int
    throughput: list[float]  # tokens/s, in each `BUCKET_S` of the run
    hit_rates: list[float]

    def between(self, begin: float, end: float) -> float:
        """Mean throughput, tokens/s, from `begin` to `end`, seconds of the run."""
        return mean(self.throughput[int(begin / BUCKET_S) : int(end / BUCKET_S)])


def result(experiment: Experiment, tally: Tally, *, name: str, policy: str, seed: int) -> Result:
    """What a tally says. Raises ValueError where nothing was answered."""
    if not tally.requests:
        raise ValueError(f"{name}, {policy}, seed {seed}: no request was answered between its warm-up and its end")
    seconds = experiment.end - experiment.warm_up
    buckets = [tally.buckets[number] for number in range(int(experiment.end / BUCKET_S))]
    return Result(
        experiment=name,
        policy=policy,
        seed=seed,
        column=_column(tally, seconds),
        p99_e2e_s=percentile_99(tally.e2e),
        ceiling=1 - tally.new / tally.prompt,
        worst_hit_rate=tally.worst_hit_rate(),
        moves=tally.moves / tally.requests,
        preemptions=tally.preemptions,
        repeats=tally.repeats,
        throughput=[(bucket.prompt + bucket.answer) / BUCKET_S for bucket in buckets],
        hit_rates=[bucket.hit / bucket.prompt if bucket.prompt else 0.0 for bucket in buckets],
    )


def _column(tally: Tally, seconds: float) -> Column:
    return Column(
        tokens_per_s=(tally.prompt + tally.answer) / seconds,
        requests_per_s=tally.requests / seconds,
        hit_rate=tally.hit / tally.prompt,
        ttft_s=tally.ttft_s / tally.requests,
        tpot_s=tally.tpot_s / max(1, tally.tpot_requests),
        queue_s=tally.queue_s / tally.requests,
        running=mean(tally.running),
        e2e_s=mean(tally.e2e),
    )


def percentile_99(values: Sequence[float]) -> float:
    """The 99th percentile."""
    return quantiles(values, n=100)[-1] if len(values) > 1 else values[0]
