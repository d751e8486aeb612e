"""Finished runs as tables: the document's, each workload's, the targets; and what the document's gain is."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isnan
from statistics import mean, stdev
from typing import Any

from rich import box
from rich.table import Table

from .document import DOCUMENT, ROLLOUTS, in_flight, outside_s, read
from .experiments import TABLE, Entry
from .over_http import HttpResult
from .parameters import ENGINE, WORKLOAD, Row
from .results import METRICS, Column, Result
from .targets import Runs, Verdict

SHOWN = 6  # figures of single seeds in a line


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table that is also Markdown."""
    drawn = Table(title=title, box=box.MARKDOWN, title_justify="left")
    for number, heading in enumerate(headings):
        drawn.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        drawn.add_row(*row)
    return drawn


def document_table(runs: Runs) -> Table:
    """The document's table, its columns as lines: what it published, and what was simulated for each."""
    rows = []
    for name, column in DOCUMENT.items():
        published = [metric.show(getattr(column, field)) for field, metric in METRICS.items()]
        rows.append([f"{name}, published", *published])
        rows += [_simulated(entry, runs) for entry in TABLE if entry.document == name]
    rows += [_simulated(entry, runs) for entry in TABLE if entry.document is None]
    return table(
        "The three-way table", ["", *(metric.heading for metric in METRICS.values())], [row for row in rows if row]
    )


def _simulated(entry: Entry, runs: Runs) -> list[str]:
    results = runs.of(entry.experiment, entry.policy)
    return [f"{entry.heading}, simulated", *(_spread(results, name) for name in METRICS)] if results else []


def http_table(title: str, results: Sequence[HttpResult]) -> Table:
    """All policies on a fleet of servers."""
    rows = []
    for policy in dict.fromkeys(result.policy for result in results):
        mine = [result for result in results if result.policy == policy]
        failed = sum(result.failed for result in mine)
        rows.append([policy, *(_spread(mine, name) for name in METRICS), str(failed)])
    return table(title, ["policy", *(metric.heading for metric in METRICS.values()), "failed"], rows)


def _spread(results: Sequence[Result] | Sequence[HttpResult], name: str) -> str:
    """Mean ± standard deviation over the repetitions."""
    values = [getattr(result.column, name) for result in results]
    show = METRICS[name].show
    if any(isnan(value) for value in values):
        return "-"
    return f"{show(mean(values))} ± {show(stdev(values))}" if len(values) > 1 else show(values[0])


def workload_table(runs: Runs, experiment: str, policies: Sequence[str]) -> Table:
    """All policies on one workload."""
    rows = []
    for policy in policies:
        results = runs.of(experiment, policy)
        if results:
            rows.append([policy, *(_spread(results, name) for name in METRICS), *_extremes(results)])
    headings = ["policy", *(metric.heading for metric in METRICS.values()), "p99 e2e s", "worst hit", "moves"]
    return table(experiment, headings, rows)


def _extremes(results: Sequence[Result]) -> tuple[str, str, str]:
    p99 = mean(result.p99_e2e_s for result in results)
    worst = min(result.worst_hit_rate for result in results)
    return f"{p99:.0f}", f"{worst:.2f}", f"{mean(result.moves for result in results):.2%}"


def target_table(verdicts: Sequence[Verdict]) -> Table:
    """Each target, with every seed's figure."""
    rows = [
        [
            verdict.target.experiment,
            verdict.target.label,
            f"{'at most' if verdict.target.at_most else 'at least'} {verdict.target.bound:.3g}",
            f"{'worst' if verdict.target.every_seed else 'mean'} {verdict.target.decisive(verdict.figures):.3f}",
            _each(verdict.figures),
            "met" if verdict.met else "NOT MET",
        ]
        for verdict in verdicts
    ]
    return table("Targets", ["workload", "session's", "target", "judged by", "each seed", ""], rows)


def _each(figures: Sequence[float]) -> str:
    """Every figure, or where there are too many for a line, their range and spread."""
    if len(figures) <= SHOWN:
        return ", ".join(f"{figure:.3f}" for figure in figures)
    return f"{min(figures):.3f} to {max(figures):.3f}, s.d. {stdev(figures):.3f}, {len(figures)} seeds"


def parameter_table(title: str, rows: Mapping[str, Row]) -> Table:
    """Every parameter and its origin."""
    profiles = list(next(iter(rows.values())).values)
    lines = [
        [name, row.unit, *(f"{row.values[profile]:g}" for profile in profiles), row.origin]
        for name, row in rows.items()
    ]
    return table(title, ["parameter", "unit", *profiles, "origin"], lines)


def parameter_tables() -> list[Table]:
    """Those of the engines and of the work."""
    return [parameter_table("Engines", ENGINE), parameter_table("Work", WORKLOAD)]


def reading() -> str:
    """What the document's gain is, computed from its own table."""
    found = read()
    columns = [f"  {name}: {_loop(column)}" for name, column in DOCUMENT.items()]
    return "\n".join(
        [
            f"{ROLLOUTS} rollouts in a closed loop: requests/s = {ROLLOUTS} / (R + Z), R in the engines, Z outside.",
            *columns,
            f"From baseline to unified requests/s rose by {found.gain:+.1%}, although R got worse.",
            f"  unified's R with the baseline's Z: {found.gain_at_old_outside:+.1%}",
            f"  the baseline's R with unified's Z: {found.gain_of_outside_alone:+.1%}",
            f"  a baseline whose TTFT and queues cost nothing: {found.gain_without_ttft:+.1%}",
            "So the gain is time saved outside the engines. No engine metric sees it, and no router policy brings it.",
        ]
    )


def _loop(column: Column) -> str:
    outside = f"R = {column.e2e_s:.1f} s, Z = {ROLLOUTS} / {column.requests_per_s} - R = {outside_s(column):.1f} s"
    return f"{outside}; in flight by Little's law {in_flight(column):.0f}, running as published {column.running:.0f}"


def as_json(results: Sequence[Result] | Sequence[HttpResult]) -> list[dict[str, object]]:
    """Everything that was measured."""
    return [asdict(result) for result in results]


def from_json(entry: Mapping[str, Any]) -> Result:
    """One run, as `as_json` wrote it."""
    return Result(**{**entry, "column": Column(**entry["column"])})
