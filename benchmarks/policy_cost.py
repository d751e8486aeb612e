"""What a choice costs: each policy at 16, 256 and 4,096 shards with 100,000 requests in flight, and reading a body.

Run it with `uv run --group bench python benchmarks/policy_cost.py`. It prints a table and writes a JSON file and a
plot.
"""

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any

import orjson
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from rich.table import Table

from gymproof.router.conversation import turn_of
from gymproof.router.policies import POLICIES, PolicySettings, Turn
from gymproof.router.policies.base import Policy

SIZES = (16, 256, 4096)
IN_FLIGHT = 100_000
PICKS = 5_000


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
    todo = [(policy, count) for policy in POLICIES for count in SIZES]
    picks = [measure(policy, count) for policy, count in track(todo, description="policies")]
    result = {"picks": picks, "session_bytes": session_bytes(), "body_ms_per_mib": body_ms_per_mib()}
    options.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    Console(width=110).print(table(picks))
    print(f"memory: {result['session_bytes']:.0f} bytes a session; body: {result['body_ms_per_mib']:.1f} ms per MiB")
    plot(picks, options.plot)


def measure(name: str, count: int) -> dict[str, Any]:
    """Microseconds of a choice for a known session and for a new one, with IN_FLIGHT under way."""
    policy: Policy[Shard] = POLICIES[name](PolicySettings(), Random(1))
    policy.set_serving([Shard(f"http://h{number}") for number in range(count)], 0.0)
    # Rendezvous hashing looks at every shard for each, and keeps no books that would have to be filled.
    filled, picks = (200, 200) if name == "consistent_hash" else (IN_FLIGHT, PICKS)
    known = [turn(number) for number in range(filled)]
    for one in known:
        if (choice := policy.choose(one, 0.0)) is not None:
            choice.shard.in_flight += 1
    stays = timed(policy, Random(2).sample(known, picks))
    news = timed(policy, [turn(number) for number in range(IN_FLIGHT, IN_FLIGHT + picks)])
    return {"policy": name, "shards": count, "known": stays, "new": news}


def turn(number: int) -> Turn:
    """A turn of one of the rollouts, of which 16 are a group."""
    return Turn((b"%d" % number,), b"%d" % (number // 16), 30_000)


def timed(policy: Policy[Shard], turns: list[Turn]) -> dict[str, float]:
    """The middle and the 99th percentile of a choice, in microseconds."""
    spent = []
    for one in turns:
        started = time.perf_counter()
        policy.choose(one, 1.0)
        spent.append(1e6 * (time.perf_counter() - started))
    return {"p50_us": median(spent), "p99_us": quantiles(spent, n=100)[98]}


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


def body_ms_per_mib() -> float:
    """Milliseconds to find the conversation in a body of 30 turns with token ids, as NeMo-Gym sends them, per MiB."""
    said = {"role": "assistant", "content": "word " * 800, "prompt_token_ids": list(range(9000, 19_000))}
    body = orjson.dumps({"messages": [{"role": "user", "content": "go " * 300}, said] * 30})
    return (
        1e3
        * median(seconds(lambda: turn_of("/v1/chat/completions", b"", body, bool)) for _ in range(15))
        / (len(body) / (1 << 20))
    )


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def table(picks: list[dict[str, Any]]) -> Table:
    """One row for each policy and size."""
    grid = Table(title=f"microseconds of a choice, {IN_FLIGHT:,} requests in flight")
    for column in ("policy", "shards", "known p50", "known p99", "new p50", "new p99"):
        grid.add_column(column, justify="left" if column == "policy" else "right")
    for row in picks:
        figures = [row[kind][part] for kind in ("known", "new") for part in ("p50_us", "p99_us")]
        grid.add_row(row["policy"], f"{row['shards']:,}", *(f"{figure:.1f}" for figure in figures))
    return grid


def plot(picks: list[dict[str, Any]], path: Path) -> None:
    """The middle cost of a new session's choice against the size of the fleet."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for policy in POLICIES:
        rows = [row for row in picks if row["policy"] == policy]
        axes.plot([row["shards"] for row in rows], [row["new"]["p50_us"] for row in rows], marker="o", label=policy)
    axes.set(xscale="log", yscale="log", xlabel="shards", ylabel="choice for a new session, median, µs")
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
