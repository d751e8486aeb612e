"""The published three-way table, with this router's policies beside it: simulated engines, servers, and real vLLM.

`uv run --group bench python benchmarks/three_way.py simulate` runs engines in virtual time; `sockets` runs simulated
servers behind a real gym-router; `vllm` runs real vLLM servers on CPUs; `parameters` prints what the engines are made of.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import orjson
import typer
from fleets.experiments import EXPERIMENTS, run, runs
from fleets.report import as_json, document_table, parameter_tables, reading, target_table, workload_table
from fleets.results import Result
from fleets.routing import ROUTERS
from fleets.targets import Runs, judge
from rich.console import Console
from rich.progress import Progress

app = typer.Typer(add_completion=False, help=__doc__)
console = Console(width=200, soft_wrap=True)
Json = Annotated[Path | None, typer.Option("--json", help="write everything that was measured to this file")]


@app.command()
def simulate(
    seeds: Annotated[str, typer.Option(help="separated by commas")] = "21,22,23",
    experiments: Annotated[str, typer.Option(help="separated by semicolons")] = ";".join(EXPERIMENTS),
    policies: Annotated[str, typer.Option(help="separated by commas")] = ",".join(ROUTERS),
    json: Json = None,
    plots: Annotated[Path | None, typer.Option(help="a folder for PNG plots")] = None,
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
    found = Runs(results)
    console.print(document_table(found))
    console.print(reading(), "\n")
    for experiment in chosen:
        console.print(workload_table(found, experiment, used))
    console.print(target_table(judge(found, numbers)))
    if plots:
        draw(found, chosen, used, plots)


def run_all(todo: Sequence[tuple[str, str, int]]) -> list[Result]:
    """One after the other, with a progress bar in simulated seconds."""
    results = []
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=sum(EXPERIMENTS[name].end for name, _, _ in todo))
        for name, policy, seed in todo:
            progress.update(bar, description=f"{name}, {policy}, seed {seed}")
            results.append(run(name, policy, seed, lambda seconds: progress.advance(bar, seconds)))
    return results


def draw(found: Runs, experiments: Sequence[str], policies: Sequence[str], folder: Path) -> None:
    """Throughput and hit rate over time."""
    from fleets.plots import name_of, plot_experiment  # noqa: PLC0415  matplotlib is needed for nothing else

    for experiment in experiments:
        plot_experiment(found, experiment, policies, folder / name_of(experiment))


@app.command()
def parameters() -> None:
    """Every parameter of the simulated engines and of their work, with its origin."""
    for drawn in parameter_tables():
        console.print(drawn)


if __name__ == "__main__":
    app()
