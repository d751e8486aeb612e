"""The `gym-chaos` command."""

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from .choices import GYM_ROUTER, PLACEHOLDERS, Setup, resolve_client
from .clients import CLIENTS
from .commands import CONSOLE, refused
from .compare_command import diff, replay
from .conform.command import conform
from .conform.scoreboard import scoreboard
from .explore.cli import explore_command
from .from_log_command import from_log
from .gate import gate
from .judging import judge_all, tell
from .report.command import report
from .runner import Result
from .scenario import ScenarioError, cases, find, shipped
from .stage import Session
from .summary import exit_code
from .under_test import RouterError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Kills, wedges and stalls a vLLM fleet behind a router, and judges what the clients saw.",
)
app.command("replay")(replay)
app.command("diff")(diff)
app.command("report")(report)
app.command("explore")(explore_command)
app.command("gate")(gate)
app.command("conform")(conform)
app.command("scoreboard")(scoreboard)
app.command("from-log")(from_log)


@app.command("list")
def list_scenarios() -> None:
    """List the scenarios that come with the suite."""
    rows = Table("scenario", "scopes", "faults", "what it is about")
    for path in shipped():
        found = cases(path)
        scopes = ", ".join(case.scope for case in found) if len(found) > 1 else "-"
        scenario = found[0].scenario
        rows.add_row(path.name.split(".")[0], scopes, ", ".join(plan.kind for plan in scenario.fault), scenario.title)
    CONSOLE.print(rows)


@app.command()
def run(  # noqa: PLR0917 - typer makes options of them
    scenarios: Annotated[list[str], typer.Argument(metavar="FILE...", help="Scenario files, or names from `list`.")],
    fleet: Annotated[str, typer.Option(help="What the backends are: sim, ray, vllm.")] = "sim",
    client: Annotated[str, typer.Option(help=f"Who calls: auto, {', '.join(CLIENTS)}.")] = "auto",
    router_cmd: Annotated[
        str,
        typer.Option(
            metavar="CMD", help=f"The router to judge; knows {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}."
        ),
    ] = GYM_ROUTER,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where histories go (chaos-runs/TIME).")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of prompts and of simulated answers.")] = 0,
    toxiproxy_url: Annotated[
        str | None, typer.Option(metavar="URL", help="A Toxiproxy server that already runs.")
    ] = None,
    shards: Annotated[int | None, typer.Option(min=1, help="How many backends, whatever a scenario says.")] = None,
    vllm_python: Annotated[str | None, typer.Option(metavar="FILE", help="The interpreter that has vLLM.")] = None,
    model: Annotated[str | None, typer.Option(help="Path or name (a tiny one, made on the spot).")] = None,
    vllm_arg: Annotated[list[str] | None, typer.Option(metavar="ARG", help="One more argument for vllm serve.")] = None,
) -> None:
    """Run scenarios and judge them. Exit 0: all passed; 1: one failed; 2: bad input, or it could not be told."""
    setup = Setup(
        out=out or Path("chaos-runs") / time.strftime("%Y%m%d-%H%M%S"),
        fleet=fleet,
        client=client,
        router_cmd=router_cmd,
        seed=seed,
        toxiproxy_url=toxiproxy_url,
        shards=shards,
        vllm_python=vllm_python,
        model=model,
        vllm_args=tuple(vllm_arg or ()),
    )
    raise typer.Exit(_run(scenarios, setup, junit))


def _run(scenarios: Sequence[str], setup: Setup, junit: Path | None) -> int:
    """Judge, and tell it whatever ends the run. Returns the exit code; raises typer.Exit for bad input."""
    try:
        chosen = [case for path in find(scenarios) for case in cases(path)]
        session = Session(setup)
        setup.out.mkdir(parents=True, exist_ok=True)
        if junit is not None:
            junit.open("a").close()
    except (ScenarioError, RouterError, OSError) as error:
        raise refused(error) from error
    router = setup.router_cmd.split()[0]
    CONSOLE.print(f"client: {resolve_client(setup.client)}   router: {router}   records: {setup.out}")
    # A run that is told to stop cleans up after itself, by whatever signal.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results: list[Result] = []
    try:
        judge_all(chosen, session, results)
    finally:
        tell(results, junit)
    return exit_code(results)


def main() -> None:
    """Entry point of the `gym-chaos` command."""
    app()
