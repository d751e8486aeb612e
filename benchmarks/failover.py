"""How long a fault is felt: from the fault to the last affected call's answer, and the rollouts that it cost.

Run it with `uv run python benchmarks/failover.py`; with `--fleet vllm` for real servers, which get twice the seconds.
Two routers on the same faults and the same load: gym-router, and gym-router told to do as routers without a watch do
(no health, one attempt, no progress watch), which is how NeMo-RL's own behaves with `health_managed` off.
"""

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from gymproof.chaos.choices import Setup
from gymproof.chaos.history import History
from gymproof.chaos.runner import run_case
from gymproof.chaos.scenario import Case, cases
from gymproof.chaos.stage import Session

SERVE = (
    "gym-router serve --port {port} --backends-file {backends_file} --backend-timeout-s {deadline_s} "
    "--connect-timeout-s 1 --stall-after-s {stall_after_s} --probe-interval-s 0.5 "
)
ROUTERS = {"gym-router": SERVE, "no watch, one attempt": f"{SERVE} --stall-after-s 0 --health off --max-attempts 1"}
FAULTS = {
    "shard killed": 'kind = "kill"',
    "engine killed": 'kind = "kill"\nprocess = "engine"',
    "engine frozen": 'kind = "stop"\nprocess = "engine"',
    "API server frozen": 'kind = "stop"\nprocess = "server"',
    "answers cut": 'kind = "cut_body"',
    "SIGTERM (answers aborted)": 'kind = "terminate"',
}
SCENARIO = """
title = "{title}"
why = "To measure how long it is felt."
scopes = ["one"]
[load]
rollouts = 24
concurrency = 12
[limits]
deadline_s = {deadline_s}
stall_after_s = {stall_after_s}
[[fault]]
{fault}
"""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--deadline-s", type=float, default=20.0)
    parser.add_argument("--stall-after-s", type=float, default=3.0)
    parser.add_argument("--client", default="auto")
    parser.add_argument("--fleet", default="sim", help="sim, or vllm (docs/vllm.md)")
    options = parser.parse_args()
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as folder:
        histories = asyncio.run(measure(Path(folder), options))
    limits = next(iter(histories.values()))[0].limits
    title = (
        f"fleet {options.fleet}, client {limits.client}, deadline {limits.deadline_s:g} s, "
        f"progress watch {limits.stall_after_s:g} s, {options.rounds} rounds"
    )
    rows = Table("fault, one shard of three", title=title)
    for router in ROUTERS:
        rows.add_column(f"{router}: felt for s", justify="right")
        rows.add_column("rollouts lost", justify="right")
    for fault in FAULTS:
        cells = [
            cell for router in ROUTERS for cell in (felt(histories[router, fault]), lost(histories[router, fault]))
        ]
        rows.add_row(fault, *cells)
    console.print(rows)


async def measure(folder: Path, options: argparse.Namespace) -> dict[tuple[str, str], list[History]]:
    """The histories of each router on each fault."""
    found: dict[tuple[str, str], list[History]] = {(router, fault): [] for router in ROUTERS for fault in FAULTS}
    progress = iter(track([*found] * options.rounds, description="runs"))
    for router, command in ROUTERS.items():
        setup = Setup(out=folder / router, fleet=options.fleet, client=options.client, router_cmd=command)
        async with Session(setup) as session:
            for fault in [*FAULTS] * options.rounds:
                next(progress)
                result = await run_case(session, case(folder, fault, options))
                if result.history is None:
                    raise SystemExit(f"{router}, {fault}: {result.failures()}")
                found[router, fault].append(result.history)
    return found


def case(folder: Path, fault: str, options: argparse.Namespace) -> Case:
    """The scenario of one fault."""
    path = folder / f"{fault.replace(' ', '_')}.chaos.toml"
    path.write_text(
        SCENARIO.format(
            title=fault, fault=FAULTS[fault], deadline_s=options.deadline_s, stall_after_s=options.stall_after_s
        )
    )
    return cases(path)[0]


def felt(histories: list[History]) -> str:
    """Median (highest) over the rounds: from the fault to the end of the last call that it slowed down or broke."""
    seconds = [_felt(history) for history in histories]
    return f"{statistics.median(seconds):.1f} ({max(seconds):.1f})"


def _felt(history: History) -> float:
    fault = history.faults[0]
    usual = max(call.ended - call.started for call in history.calls if call.ended and call.ended < fault.began)
    hurt = [
        call.ended - fault.began
        for call in history.calls
        if call.ended
        and call.ended > fault.began
        and (call.outcome != "returned" or call.ended - call.started > 2 * usual)
    ]
    return max(hurt, default=0.0)


def lost(histories: list[History]) -> str:
    """Rollouts that did not complete, of all that were under way during or after the fault."""
    concerned = [
        rollout
        for history in histories
        for rollout in history.rollouts
        if rollout.phase == "fault" and (rollout.ended or 0) > history.faults[0].began
    ]
    return f"{sum(not rollout.completed for rollout in concerned)} of {len(concerned)}"


if __name__ == "__main__":
    main()
