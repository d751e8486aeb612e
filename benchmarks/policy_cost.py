"""What a choice costs: each policy at 16, 256 and 4,096 shards with 100,000 requests in flight, and reading a body.

Run it with `uv run --group bench python benchmarks/policy_cost.py`. It prints tables and writes a JSON file and a plot.
Times are CPU time of the thread, taken choice by choice, the garbage collector's (as gym-router sets it) and the
clock's own included. Everything is run three times alike, and the least time of each choice counts: what is left of a
busy machine is gone, what the code does at that choice is not.
"""

import argparse
import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import mean, median, quantiles
from typing import Any

import orjson
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from rich.table import Table

from gymproof.router.cli import GC_THRESHOLD
from gymproof.router.conversation import turn_of
from gymproof.router.policies import POLICIES, PolicySettings, Turn
from gymproof.router.policies.base import Policy

SIZES = (16, 256, 4096)
IN_FLIGHT = 100_000
PICKS = 5_000
RUNS = 3
KINDS = {
    "known": "a known session",
    "new": "a new session",
    "burst": "a new session, while 100,000 that ended together are forgotten",
}
FORGOTTEN_S = 1000.0  # when sessions that ended at 0 count no longer


@dataclass(eq=False)
class Shard:
    """What a policy sees of one."""

    url: str
    in_flight: int = 0


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("docs/policy_cost.json"))
    parser.add_argument("--plot", type=Path, default=Path("docs/policy_cost.png"))
    options = parser.parse_args()
    gc.set_threshold(GC_THRESHOLD)
    todo = [(policy, count) for policy in POLICIES for count in SIZES]
    picks = [cost_of(policy, count) for policy, count in track(todo, description="policies")]
    result = {
        "measured": "time.thread_time_ns around each choice, the least of 3 equal runs: CPU time, the clock's included",
        "clock_us": figures([timed(lambda: None, [()] * PICKS)] * RUNS),
        "in_flight": IN_FLIGHT,
        "kinds": KINDS,
        "picks": picks,
        "session_bytes": session_bytes(),
        "body_ms_per_mib": {name: ms_per_mib(body) for name, body in BODIES.items()},
    }
    options.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    console = Console(width=130)
    console.print(table(picks))
    console.print(f"memory: {result['session_bytes']:.0f} bytes a session")
    for name, spent in result["body_ms_per_mib"].items():
        console.print(f"reading a body, {name}: {spent:.1f} ms per MiB")
    plot(picks, options.plot)


def cost_of(name: str, count: int) -> dict[str, Any]:
    """What a policy needs with so many shards, for each kind of choice and to hear that a shard is lost."""
    runs = [one_run(name, count) for _ in range(RUNS)]
    return {"policy": name, "shards": count} | {kind: figures([run[kind] for run in runs]) for kind in runs[0]}


def one_run(name: str, count: int) -> dict[str, list[float]]:
    """Microseconds of each choice, by kind, with IN_FLIGHT under way."""
    policy: Policy[Shard] = POLICIES[name](PolicySettings(), Random(1))
    shards = [Shard(f"http://h{number}") for number in range(count)]
    policy.set_serving(shards, 0.0)
    known = [turn(number) for number in range(IN_FLIGHT)]
    for one in known:
        if (choice := policy.choose(one, 0.0)) is not None:
            choice.shard.in_flight += 1
    for number in range(1, IN_FLIGHT + 1):
        if (choice := policy.choose(turn(-number), 0.0)) is not None:
            policy.ended(choice, 0.0, 30_000)
    new = [turn(number) for number in range(IN_FLIGHT, IN_FLIGHT + 2 * PICKS)]
    return {
        "known": timed(policy.choose, [(one, 1.0) for one in Random(2).sample(known, PICKS)]),
        "new": timed(policy.choose, [(one, 1.0) for one in new[:PICKS]]),
        "burst": timed(policy.choose, [(one, FORGOTTEN_S) for one in new[PICKS:]]),
        "lost": timed(policy.set_serving, [(shards[number % 2 :], FORGOTTEN_S) for number in range(20)]),
    }


def turn(number: int) -> Turn:
    """A turn of one of the rollouts, of which 16 are a group."""
    return Turn((b"%d" % number,), b"%d" % (number // 16), 30_000)


def timed(work: Callable[..., object], calls: list[tuple[Any, ...]]) -> list[float]:
    """Microseconds of CPU time that each call takes."""
    spent = []
    for call in calls:
        started = time.thread_time_ns()
        work(*call)
        spent.append((time.thread_time_ns() - started) / 1e3)
    return spent


def figures(runs: list[list[float]]) -> dict[str, float]:
    """The middle, the 99th percentile and the mean of the least times of equal runs."""
    spent = [min(times) for times in zip(*runs, strict=True)]
    return {"p50_us": median(spent), "p99_us": quantiles(spent, n=100)[98], "mean_us": mean(spent)}


def session_bytes() -> float:
    """Memory of one remembered session, idle, everything included."""
    policy: Policy[Shard] = POLICIES["session"](PolicySettings(), Random(1))
    policy.set_serving([Shard("http://h")], 0.0)
    tracemalloc.start()
    for number in range(PICKS):
        if (choice := policy.choose(turn(number), 0.0)) is not None:
            policy.ended(choice, 0.0, 30_000)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / PICKS


def body(*messages: Mapping[str, Any]) -> bytes:
    """A chat completion request."""
    return orjson.dumps({"model": "m", "messages": messages})


def said(words: int, **more: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """A question and its answer of so many words each."""
    text = "word " * words
    return {"role": "user", "content": text}, {"role": "assistant", "content": text, **more}


BODIES = {
    "30 turns with token ids, as NeMo-Gym sends them": body(*said(800, prompt_token_ids=[*range(9000, 19_000)]) * 30),
    "messages of 256 KiB": body(*said(52_000) * 2),
    "messages of 4 KiB": body(*said(800) * 150),
    "messages of 100 bytes": body(*said(15) * 4000),
}


def ms_per_mib(document: bytes) -> float:
    """Milliseconds of CPU time to find the conversation in a body, per MiB."""
    spent = timed(lambda: turn_of("/v1/chat/completions", b"", document, bool), [()] * 15)
    return median(spent) / 1e3 / (len(document) / (1 << 20))


def table(picks: list[dict[str, Any]]) -> Table:
    """One row for each policy and size."""
    grid = Table(title=f"microseconds of CPU time of a choice, {IN_FLIGHT:,} requests in flight: p50 / p99 / mean")
    for column in ("policy", "shards", *KINDS, "a shard is lost"):
        grid.add_column(column, justify="left" if column == "policy" else "right")
    for row in picks:
        cells = [" / ".join(f"{figure:.1f}" for figure in row[kind].values()) for kind in KINDS]
        grid.add_row(row["policy"], f"{row['shards']:,}", *cells, f"{row['lost']['mean_us']:,.0f}")
    return grid


def plot(picks: list[dict[str, Any]], path: Path) -> None:
    """The mean cost of a new session's choice against the size of the fleet; p99 dotted."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for policy in POLICIES:
        rows = [row for row in picks if row["policy"] == policy]
        sizes = [row["shards"] for row in rows]
        (line,) = axes.plot(sizes, [row["new"]["mean_us"] for row in rows], marker="o", label=policy)
        axes.plot(sizes, [row["new"]["p99_us"] for row in rows], linestyle=":", color=line.get_color())
    axes.set(xscale="log", xlabel="shards", ylabel="µs of CPU time: mean, p99 dotted", ylim=(0, 25))
    axes.set_title("choice for a new session")
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
