"""Cases one after the other, with progress on the terminal, and what is told at the end, whatever ended it."""

import asyncio
import math
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from .commands import CONSOLE, ERRORS, INTERRUPTED, progress_bar, refused
from .provision import ToxiproxyUnavailableError
from .recording import load_run
from .report import write as write_report
from .runner import Result, run_case
from .scenario import Case
from .stage import Session
from .summary import reasons, table, write_junit, write_verdicts


def judge_all(chosen: Sequence[Case], session: Session, results: list[Result], *, last: float = math.inf) -> None:
    """Run the cases, none of which begins after `last` (time.monotonic()). Each result is appended as it comes.

    Raises typer.Exit when it is interrupted, or when Toxiproxy can't be had.
    """
    try:
        asyncio.run(_run_all(chosen, session, results, last))
    except KeyboardInterrupt:
        ERRORS.print(f"gym-chaos: interrupted after {len(results)} of {len(chosen)} cases; all processes are ended")
        raise typer.Exit(INTERRUPTED) from None
    except ToxiproxyUnavailableError as error:
        raise refused(error) from error


def tell(results: Sequence[Result], junit: Path | None) -> None:
    """Print the table and every reason for which a case did not pass, and write JUnit XML where it is wanted."""
    if not results:
        return
    CONSOLE.print(table(results))
    for reason in reasons(results):
        CONSOLE.print(reason, markup=False, highlight=False, soft_wrap=True)
    if junit is not None:
        write_junit(results, junit)


async def _run_all(chosen: Sequence[Case], session: Session, results: list[Result], last: float) -> None:
    with progress_bar() as progress:
        task = progress.add_task("starting", total=len(chosen))
        async with session:
            for case in chosen:
                if time.monotonic() >= last:
                    return
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
