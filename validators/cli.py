"""`check-gym-status`: one question, one answer, one exit status.

0 safe, 1 unsafe (or, for --learn, different from the shipped table), 2 cannot tell or bad input.
"""

import asyncio
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperCommand

from .cases import FAULT_CASES, STATUS_CASES
from .config import judge_config
from .contract import CLIENT, Behaviour, Contract, contract_to_json, differences, load_contract, shipped_versions
from .findings import Finding, UnsafeForGymError, Verdict, worst
from .gym_client import GymUnavailableError, gym_version, measured_with, open_gym_client
from .learn import learn
from .report import differences_json, differences_table, findings_json, findings_report, refusal_json, stderr, stdout
from .status import judge_status
from .url import judge_url

EXIT = {Verdict.SAFE: 0, Verdict.UNSAFE: 1, Verdict.UNKNOWN: 2}

NEGATIVE = re.compile(r"-\d+")
MODES = "statuses, --config FILE, --url URL or --learn (see --help)"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """A negative number is a wrong status, not an unknown option."""
        ctx.ignore_unknown_options = any(map(NEGATIVE.fullmatch, args))
        return super().parse_args(ctx, args)


@app.command(cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
def check(
    items: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STATUS]...", help="Statuses to judge; with --config, overrides after --."),
    ] = None,
    *,
    config: Annotated[Path | None, typer.Option(help="NeMo-RL YAML, or a gym-router TOML or YAML, to judge.")] = None,
    url: Annotated[str | None, typer.Option(help="Running router to ask harmless questions.")] = None,
    measure: Annotated[
        bool, typer.Option("--learn", help="Measure the installed nemo-gym and compare with the shipped table.")
    ] = False,
    gym: Annotated[
        str | None, typer.Option(help="nemo-gym version to judge by, or 'installed'; the strictest table by default.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="With --learn: write the measured table here.")] = None,
    real_sleeps: Annotated[
        bool, typer.Option(help="With --learn: keep the client's half seconds between tries.")
    ] = False,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="With --url: seconds for each question.")] = 10.0,
    hold_s: Annotated[float, typer.Option(min=0, help="With --url: seconds that a connection is left idle.")] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether NeMo-Gym can live with a status, a configuration or a running router."""
    modes = [bool(items) and config is None, config is not None, url is not None, measure]
    if sum(modes) != 1:
        what = "only one thing can be judged at once" if any(modes) else "name one thing to judge"
        _refuse(f"{what}: {MODES}", as_json=as_json)
    if measure:
        _learn(gym, save, real_sleeps=real_sleeps, as_json=as_json)
    contract = _contract(gym, as_json=as_json)
    if url is not None:
        _tell(
            lambda: asyncio.run(judge_url(url, timeout_s=timeout_s, hold_s=hold_s, contract=contract)),
            contract,
            as_json,
        )
    if config is not None:
        _tell(lambda: judge_config(config, overrides=items or (), contract=contract), contract, as_json)
    for item in items or ():
        if not re.fullmatch(r"[2-5][0-9][0-9]", item):
            _refuse(f"{item!r} is not a status in 200..599", as_json=as_json)
    _tell(lambda: [judge_status(int(item), contract=contract) for item in items or ()], contract, as_json)


def _tell(judge: Callable[[], list[Finding]], contract: Contract, as_json: bool) -> NoReturn:
    """Print the findings and leave with the exit status of the worst."""
    try:
        findings = judge()
    except UnsafeForGymError as error:
        findings = list(error.findings)
    if as_json:
        typer.echo(findings_json(findings, contract))
    else:
        stdout().print(findings_report(findings))
        others = ", ".join(version for version in shipped_versions() if version != contract.version)
        stdout().print(f"{worst(findings)}, by {contract.client} {contract.version} (--gym knows {others} too)")
    raise typer.Exit(EXIT[worst(findings)])


def _contract(version: str | None, *, as_json: bool) -> Contract:
    try:
        return load_contract(CLIENT, gym_version() if version == "installed" else version)
    except (LookupError, GymUnavailableError) as error:
        _refuse(str(error), as_json=as_json)


def _learn(against: str | None, save: Path | None, *, real_sleeps: bool, as_json: bool) -> NoReturn:
    try:
        version = gym_version()
        known = version if version in shipped_versions() else shipped_versions()[-1]
        shipped = _contract(against or known, as_json=as_json)
        measured = _measure(version, real_sleeps=real_sleeps)
        if save is not None:
            save.write_text(contract_to_json(measured), "utf-8")
    except (GymUnavailableError, OSError) as error:
        _refuse(str(error), as_json=as_json)
    found = differences(shipped, measured)
    if as_json:
        typer.echo(differences_json(found, measured, shipped))
    else:
        _tell_learned(measured, shipped, against)
    raise typer.Exit(1 if found else 0)


def _tell_learned(measured: Contract, shipped: Contract, against: str | None) -> None:
    found = differences(shipped, measured)
    out = stdout()
    if measured.version != shipped.version and against is None:
        out.print(f"no table is shipped for {measured.client} {measured.version}: compared with {shipped.version}")
    if found:
        out.print(differences_table(found, shipped))
    cases = len(measured.statuses) + len(measured.faults)
    with_ = ", ".join(f"{name} {version}" for name, version in measured.measured_with.items())
    out.print(f"{measured.client} {measured.version} ({with_}): {cases} cases measured, {len(found)} differ")
    if found and dict(measured.measured_with) != dict(shipped.measured_with):
        out.print(f"the shipped table was measured with {dict(shipped.measured_with)}")


def _measure(version: str, *, real_sleeps: bool) -> Contract:
    """Drive the real client through every case, with a progress bar on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=stderr(), transient=True) as bar:
        task = bar.add_task(f"nemo-gym {version}", total=len(STATUS_CASES) + len(FAULT_CASES))

        def progress(_name: str, _behaviour: Behaviour) -> None:
            bar.advance(task)

        return asyncio.run(
            learn(
                functools.partial(open_gym_client, sleep_s=None if real_sleeps else 0.001),
                client=CLIENT,
                version=version,
                measured_with=measured_with(),
                progress=progress,
                # Both have to outlast a bounded client, which sleeps between three tries.
                patience_s=12.0 if real_sleeps else 8.0,
                heal_after_s=8.0 if real_sleeps else 1.0,
            )
        )


def _refuse(message: str, *, as_json: bool) -> NoReturn:
    if as_json:
        typer.echo(refusal_json(message))
    else:
        stderr().print(message, style="red")
    raise typer.Exit(2)


def main() -> None:
    """Entry point of the command."""
    app()
