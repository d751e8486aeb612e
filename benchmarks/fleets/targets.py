"""What the `session` policy has to reach on simulated engines, judged from finished runs."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import mean
from typing import NamedTuple

from .experiments import OUTAGE
from .results import Result

HASH = "consistent_hash"
STICKY = ("pinned_replicas", HASH)
LEARNT = 500.0  # seconds of the run, after which the caches are as they stay


class Runs:
    """Finished runs, by experiment, policy and seed."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._results = {(result.experiment, result.policy, result.seed): result for result in results}

    def of(self, experiment: str, policy: str) -> list[Result]:
        """The runs of one experiment with one policy, in the order of their seeds."""
        found = [run for (name, used, _), run in self._results.items() if (name, used) == (experiment, policy)]
        return sorted(found, key=lambda run: run.seed)

    def one(self, experiment: str, policy: str, seed: int) -> Result:
        """One run. Raises KeyError, which names it."""
        return self._results[experiment, policy, seed]


class Target(NamedTuple):
    """One figure a seed, and the bound that it has to keep; figures without a dimension."""

    experiment: str
    label: str
    bound: float
    figure: Callable[[Runs, int], float]
    at_most: bool = False
    every_seed: bool = False  # has to keep it; else their mean

    def decisive(self, figures: Sequence[float]) -> float:
        """The mean over the seeds, or the figure of the worst one."""
        if not self.every_seed:
            return mean(figures)
        return max(figures) if self.at_most else min(figures)

    def kept(self, value: float) -> bool:
        """Whether a value keeps the bound."""
        return value <= self.bound if self.at_most else value >= self.bound


def throughput_over(experiment: str, *policies: str) -> Callable[[Runs, int], float]:
    """Tokens/s of `session`, as a multiple of the best of some policies."""

    def figure(runs: Runs, seed: int) -> float:
        others = [runs.one(experiment, policy, seed).column.tokens_per_s for policy in policies]
        return runs.one(experiment, "session", seed).column.tokens_per_s / max(others)

    return figure


def p99_over(experiment: str, policy: str) -> Callable[[Runs, int], float]:
    """The 99th percentile of end-to-end latency of `session`, as a multiple of another policy's."""

    def figure(runs: Runs, seed: int) -> float:
        return runs.one(experiment, "session", seed).p99_e2e_s / runs.one(experiment, policy, seed).p99_e2e_s

    return figure


def worst_hit_rate(experiment: str) -> Callable[[Runs, int], float]:
    """The lowest hit rate of any engine over any 100 s."""
    return lambda runs, seed: runs.one(experiment, "session", seed).worst_hit_rate


def below_ceiling(experiment: str) -> Callable[[Runs, int], float]:
    """How far the hit rate stays under that of a cache which forgets nothing."""

    def figure(runs: Runs, seed: int) -> float:
        run = runs.one(experiment, "session", seed)
        return run.ceiling - run.column.hit_rate

    return figure


def kept_in_outage(begin: float, end: float) -> Callable[[Runs, int], float]:
    """Throughput in a part of the outage, as a share of that before it."""

    def figure(runs: Runs, seed: int) -> float:
        run = runs.one("engine dies", "session", seed)
        return run.between(begin, end) / run.between(LEARNT, OUTAGE.down_at)

    return figure


def stale_metrics(runs: Runs, seed: int) -> float:
    """Throughput with metrics that are scraped every 15 s, as a share of that with 5 s."""
    stale = runs.one("spiral 0.95, metrics 15 s old", "session", seed)
    return stale.column.tokens_per_s / runs.one("spiral 0.95", "session", seed).column.tokens_per_s


ROOMY = "document, 16 engines"  # KV to spare
LOWEST = "lowest hit rate of an engine over 100 s"
TARGETS = (
    Target(ROOMY, "tokens/s / best sticky policy", 0.99, throughput_over(ROOMY, *STICKY)),
    Target(ROOMY, "hit rate under its ceiling", 0.01, below_ceiling(ROOMY), at_most=True),
    Target(ROOMY, "tokens/s / least_outstanding", 3.0, throughput_over(ROOMY, "least_outstanding")),
    Target("spiral 0.84", "tokens/s / consistent_hash", 1.3, throughput_over("spiral 0.84", HASH)),
    Target("spiral 0.95", "tokens/s / consistent_hash", 1.5, throughput_over("spiral 0.95", HASH)),
    Target("spiral 0.84", "p99 end-to-end / consistent_hash", 1 / 3, p99_over("spiral 0.84", HASH), at_most=True),
    Target("spiral 0.95", "p99 end-to-end / consistent_hash", 1 / 3, p99_over("spiral 0.95", HASH), at_most=True),
    Target("spiral 0.84", LOWEST, 0.5, worst_hit_rate("spiral 0.84"), every_seed=True),
    Target("spiral 0.95", LOWEST, 0.5, worst_hit_rate("spiral 0.95"), every_seed=True),
    Target("engine dies", "first minute / before", 0.75, kept_in_outage(OUTAGE.down_at, OUTAGE.down_at + 60)),
    Target("engine dies", "rest of the outage / before", 0.93, kept_in_outage(OUTAGE.down_at + 60, OUTAGE.up_at)),
    Target("spiral 0.95, metrics 15 s old", "tokens/s / with 5 s", 0.97, stale_metrics),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what each seed came to."""

    target: Target
    figures: list[float]

    @property
    def met(self) -> bool:
        """Whether the figure that decides keeps the bound."""
        return self.target.kept(self.target.decisive(self.figures))


def judge(runs: Runs, seeds: Iterable[int]) -> list[Verdict]:
    """Every target whose runs are all there."""
    seeds = list(seeds)
    verdicts = []
    for target in TARGETS:
        with suppress(KeyError):
            verdicts.append(Verdict(target, [target.figure(runs, seed) for seed in seeds]))
    return verdicts
