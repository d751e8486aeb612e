"""Throughput and hit rate over the time of a run, one line a policy, as PNG."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import matplotlib.pyplot as plt

from .tally import BUCKET_S
from .targets import Runs


def plot_experiment(runs: Runs, experiment: str, policies: Sequence[str], path: Path) -> None:
    """Means over the seeds, with their range as a band."""
    figure, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(9, 6), layout="constrained")
    for policy in policies:
        results = runs.of(experiment, policy)
        if results:
            _line(upper, policy, [[value / 1e3 for value in result.throughput] for result in results])
            _line(lower, policy, [result.hit_rates for result in results])
    upper.set(title=experiment, ylabel="k tokens/s (prompt + answer)", ylim=(0, None))
    lower.set(xlabel="simulated seconds", ylabel="prefix-cache hit rate", ylim=(0, 1.02))
    figure.legend(*upper.get_legend_handles_labels(), loc="outside lower center", fontsize="small", ncols=6)
    for axes in (upper, lower):
        axes.grid(visible=True, alpha=0.3)
    figure.savefig(path, dpi=85)
    plt.close(figure)


def _line(axes: plt.Axes, label: str, series: Sequence[Sequence[float]]) -> None:
    seconds = [BUCKET_S * (number + 0.5) for number in range(len(series[0]))]
    columns = list(zip(*series, strict=True))
    drawn = axes.plot(seconds, [mean(column) for column in columns], label=label, linewidth=1.4)
    if len(series) > 1:
        lows, highs = [min(column) for column in columns], [max(column) for column in columns]
        axes.fill_between(seconds, lows, highs, color=drawn[0].get_color(), alpha=0.12)


def name_of(experiment: str) -> str:
    """A file name."""
    return "three_way_" + "".join(letter if letter.isalnum() else "_" for letter in experiment.lower()) + ".png"
