"""Finished runs as tables: the document's, each workload's, the targets; and what the document's gain is."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import mean, stdev

from rich import box
from rich.table import Table

from .document import DOCUMENT, ROLLOUTS, in_flight, outside_s, read
from .experiments import TABLE
from .parameters import ENGINE, WORKLOAD, Row
from .results import METRICS, Result
from .targets import Runs, Verdict


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table that is also Markdown."""
    drawn = Table(title=title, box=box.MARKDOWN, title_justify="left")
    for number, heading in enumerate(headings):
        drawn.add_column(heading, justify="right" if number else "left")
    for row in rows:
        drawn.add_row(*row)
    return drawn


def document_table(runs: Runs) -> Table:
    """The document's metrics: what it published, and what each simulated shape came to."""
    entries = [entry for entry in TABLE if runs.of(entry.experiment, entry.policy)]
    headings = [f"{name}, published" for name in DOCUMENT] + [f"{entry.heading}, simulated" for entry in entries]
    rows = []
    for name, metric in METRICS.items():
        published = [metric.show(getattr(column, name)) for column in DOCUMENT.values()]
        simulated = [_spread(runs.of(entry.experiment, entry.policy), name) for entry in entries]
        rows.append([metric.label, *published, *simulated])
    return table("The three-way table", ["metric", *headings], rows)


def _spread(results: Sequence[Result], name: str) -> str:
    """Mean ± standard deviation over the seeds."""
    values = [getattr(result.column, name) for result in results]
    show = METRICS[name].show
    return f"{show(mean(values))} ± {show(stdev(values))}" if len(values) > 1 else show(values[0])


def workload_table(runs: Runs, experiment: str, policies: Sequence[str]) -> Table:
    """All policies on one workload."""
    rows = []
    for policy in policies:
        results = runs.of(experiment, policy)
        if results:
            rows.append([policy, *(_spread(results, name) for name in METRICS), *_extremes(results)])
    headings = ["policy", *(metric.label for metric in METRICS.values()), "p99 e2e, s", "worst engine's hit rate", "moves"]
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
            f"{mean(verdict.figures):.3f}",
            ", ".join(f"{figure:.3f}" for figure in verdict.figures),
            "met" if verdict.met else "NOT MET",
        ]
        for verdict in verdicts
    ]
    return table("Targets", ["workload", "session's", "target", "mean", "each seed", ""], rows)


def parameter_table(title: str, rows: dict[str, Row]) -> Table:
    """Every parameter and its origin."""
    profiles = list(next(iter(rows.values())).values)
    lines = [[name, row.unit, *(f"{row.values[profile]:g}" for profile in profiles), row.origin] for name, row in rows.items()]
    return table(title, ["parameter", "unit", *profiles, "origin"], lines)


def parameter_tables() -> list[Table]:
    """Those of the engines and of the work."""
    return [parameter_table("Engines", dict(ENGINE)), parameter_table("Work", dict(WORKLOAD))]


def reading() -> str:
    """What the document's gain is, computed from its own table."""
    before, after, wide = DOCUMENT.values()
    found = read(before, after)
    return "\n".join(
        [
            f"{ROLLOUTS} rollouts in a closed loop: requests/s = {ROLLOUTS} / (R + Z), R inside the engines, Z outside them.",
            f"baseline: R = {before.e2e_s:.1f} s, Z = {ROLLOUTS} / {before.requests_per_s} - R = {outside_s(before):.1f} s",
            f"unified:  R = {after.e2e_s:.1f} s, Z = {ROLLOUTS} / {after.requests_per_s} - R = {outside_s(after):.1f} s",
            f"wide-EP:  R = {wide.e2e_s:.1f} s, Z = {ROLLOUTS} / {wide.requests_per_s} - R = {outside_s(wide):.1f} s",
            f"in flight by Little's law: {in_flight(before):.0f}, {in_flight(after):.0f} and {in_flight(wide):.0f}; "
            f"running as published: {before.running:.0f}, {after.running:.0f} and {wide.running:.0f}",
            f"requests/s rose by {found.gain:+.1%} while R got worse. With the unified column's R and the baseline's Z they "
            f"would have changed by {found.gain_at_old_outside:+.1%};",
            f"with the baseline's R and the unified column's Z by {found.gain_of_outside_alone:+.1%}. A baseline whose TTFT and "
            f"queues cost nothing would gain {found.gain_without_ttft:+.1%}.",
            "So the gain is time saved outside the engines, which no engine metric sees. A router's policy does not bring it.",
        ]
    )


def as_json(results: Sequence[Result]) -> list[dict[str, object]]:
    """Everything that was measured."""
    return [asdict(result) for result in results]
