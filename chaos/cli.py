"""The `gym-chaos` command."""

import asyncio
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from .choices import GYM_ROUTER, PLACEHOLDERS, Setup, resolve_client
from .clients import CLIENTS
from .commands import CONSOLE, ERRORS, INTERRUPTED, refused
from .compare_command import diff, replay
from .explore.cli import explore_command
from .from_log_command import from_log
from .provision import ToxiproxyUnavailableError
from .recording import load_run
from .report import write as write_report
from .report.command import report
from .runner import Result, run_case
from .scenario import Case, ScenarioError, cases, find, shipped
from .stage import Session
from .summary import exit_code, reasons, table, write_junit, write_verdicts
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
    try:
        chosen = [case for path in find(scenarios) for case in cases(path)]
        folder = out or Path("chaos-runs") / time.strftime("%Y%m%d-%H%M%S")
        session = Session(
            Setup(
                out=folder,
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
        )
        folder.mkdir(parents=True, exist_ok=True)
        if junit is not None:
            junit.open("a").close()
    except (ScenarioError, RouterError, OSError) as error:
        raise refused(error) from error
    CONSOLE.print(f"client: {resolve_client(client)}   router: {router_cmd.split()[0]}   records: {folder}")
    # A run that is told to stop cleans up after itself, by whatever signal.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise typer.Exit(_judged(chosen, session, junit))


def _judged(chosen: Sequence[Case], session: Session, junit: Path | None) -> int:
    """Run the cases and report, also on those that were done when something went wrong; the exit code."""
    results: list[Result] = []
    try:
        asyncio.run(_run_all(chosen, session, results))
    except KeyboardInterrupt:
        ERRORS.print(f"gym-chaos: interrupted after {len(results)} of {len(chosen)} cases; all processes are ended")
        raise typer.Exit(INTERRUPTED) from None
    except ToxiproxyUnavailableError as error:
        raise refused(error) from error
    finally:
        if results:
            CONSOLE.print(table(results))
            for reason in reasons(results):
                CONSOLE.print(reason, markup=False, highlight=False, soft_wrap=True)
            if junit is not None:
                write_junit(results, junit)
    return exit_code(results)


async def _run_all(chosen: Sequence[Case], session: Session, results: list[Result]) -> None:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=CONSOLE, transient=True) as progress:
        task = progress.add_task("starting", total=len(chosen))
        async with session:
            for case in chosen:
                try:
                    result = await run_case(
                        session,
                        case,
                        lambda phase, case=case: progress.update(task, description=f"{case.name}: {phase}"),  # type: ignore[misc]
                    )
                except asyncio.CancelledError:
                    progress.console.print("interrupted: healing the fault and ending all processes ...")
                    raise
                write_verdicts(result)
                write_report(load_run(result.folder))
                results.append(result)
                progress.advance(task)
                progress.console.print(
                    f"{result.status:8}{case.name}  {result.seconds:.1f} s", highlight=False, markup=False
                )


def main() -> None:
    """Entry point of the `gym-chaos` command."""
    app()
