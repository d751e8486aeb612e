"""The published three-way table, with this router's policies beside it: simulated engines, servers, and real vLLM.

`uv run --group bench python benchmarks/three_way.py simulate` runs engines in virtual time; `sockets` runs simulated
servers behind a real gym-router; `vllm` runs real vLLM servers; `parameters` prints what the engines are made of.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import orjson
import typer
from fleets.experiments import EXPERIMENTS, run, runs
from fleets.http_work import SOCKETS, SOCKETS_ARGS, SOCKETS_SHARDS, VLLM, VLLM_ARGS, VLLM_SHARDS, HttpWork
from fleets.over_http import compare
from fleets.report import (
    as_json,
    document_table,
    from_json,
    http_table,
    parameter_tables,
    reading,
    target_table,
    workload_table,
)
from fleets.results import Result
from fleets.routing import ROUTERS
from fleets.targets import Runs, judge
from rich.console import Console
from rich.progress import Progress

from gymproof.chaos.fleet import LocalFleet, SimFleet
from gymproof.chaos.vllm.fleet import VllmFleet
from gymproof.chaos.vllm.install import find_vllm
from gymproof.router.policies import POLICIES

ALL_POLICIES = ",".join(POLICIES)
app = typer.Typer(add_completion=False, help=__doc__)
console = Console(width=240)
Plots = Annotated[Path | None, typer.Option(help="a folder for PNG plots")]
Policies = Annotated[str, typer.Option(help="separated by commas")]
Repetitions = Annotated[int, typer.Option(help="each with prompts of its own, the same for every policy")]
Json = Annotated[Path | None, typer.Option("--json", help="write everything that was measured to this file")]


@app.command()
def simulate(
    seeds: Annotated[str, typer.Option(help="separated by commas")] = "301,302,303,304",
    experiments: Annotated[str, typer.Option(help="separated by semicolons")] = ";".join(EXPERIMENTS),
    policies: Annotated[str, typer.Option(help="separated by commas")] = ",".join(ROUTERS),
    json: Json = None,
    plots: Plots = None,
) -> None:
    """Engines in virtual time: the document's table, every workload, the targets."""
    chosen, used = experiments.split(";"), policies.split(",")
    numbers = [int(seed) for seed in seeds.split(",")]
    try:
        todo = runs(chosen, used, numbers)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    results = run_all(todo)
    if json:
        json.write_bytes(orjson.dumps(as_json(results), option=orjson.OPT_INDENT_2))
    present(results, plots)


@app.command()
def show(file: Annotated[Path, typer.Argument(help="what `simulate --json` wrote")], plots: Plots = None) -> None:
    """The tables and plots of a simulation that was run before."""
    present([from_json(one) for one in orjson.loads(file.read_bytes())], plots)


def present(results: Sequence[Result], plots: Path | None) -> None:
    """Print every table that the runs suffice for, and draw throughput and hit rate over time."""
    found = Runs(results)
    experiments = dict.fromkeys(result.experiment for result in results)
    policies = list(dict.fromkeys(result.policy for result in results))
    console.print(document_table(found))
    console.print(reading(), "\n")
    for experiment in experiments:
        console.print(workload_table(found, experiment, policies))
    console.print(target_table(judge(found, dict.fromkeys(result.seed for result in results))))
    if plots:
        from fleets.plots import name_of, plot_experiment  # noqa: PLC0415  matplotlib is needed for nothing else

        for experiment in experiments:
            plot_experiment(found, experiment, policies, plots / name_of(experiment))


@app.command()
def sockets(policies: Policies = ALL_POLICIES, repetitions: Repetitions = 3, json: Json = None) -> None:
    """Simulated servers behind a real gym-router, over real sockets."""
    with TemporaryDirectory() as folder:
        fleet = SimFleet(SOCKETS_SHARDS, folder=Path(folder) / "fleet", args=SOCKETS_ARGS)
        over_http("Simulated servers over sockets", fleet, policies, SOCKETS, repetitions, Path(folder), json)


@app.command()
def vllm(
    policies: Policies = "session,least_outstanding",
    repetitions: Repetitions = 3,
    json: Json = None,
    python: Annotated[str | None, typer.Option(help="an interpreter that has vLLM; see docs/vllm.md")] = None,
) -> None:
    """Real vLLM servers with a small KV cache behind a real gym-router."""
    with TemporaryDirectory() as folder:
        fleet = VllmFleet(VLLM_SHARDS, folder=Path(folder) / "fleet", vllm=find_vllm(python), args=VLLM_ARGS)
        over_http("Real vLLM", fleet, policies, VLLM, repetitions, Path(folder), json)


def over_http(
    title: str, fleet: LocalFleet, policies: str, work: HttpWork, repetitions: int, folder: Path, json: Path | None
) -> None:
    """Measure, print, and write."""
    chosen = policies.split(",")
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("runs", total=repetitions * len(chosen))
        results = asyncio.run(compare(fleet, chosen, work, repetitions, folder, lambda: progress.advance(bar)))
    if json:
        json.write_bytes(orjson.dumps(as_json(results), option=orjson.OPT_INDENT_2))
    console.print(http_table(title, results))


def run_all(todo: Sequence[tuple[str, str, int]]) -> list[Result]:
    """One after the other, with a progress bar in simulated seconds."""
    results = []
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=sum(EXPERIMENTS[name].end for name, _, _ in todo))
        for name, policy, seed in todo:
            progress.update(bar, description=f"{name}, {policy}, seed {seed}")
            results.append(run(name, policy, seed, lambda seconds: progress.advance(bar, seconds)))
    return results


@app.command()
def parameters() -> None:
    """Every parameter of the simulated engines and of their work, with its origin."""
    for drawn in parameter_tables():
        console.print(drawn)


if __name__ == "__main__":
    app()
