"""`check-gym-status`: one question, one answer, one exit status.

0 safe, 1 unsafe (or, for --learn, different from the shipped table), 2 cannot tell or bad input.
"""

import asyncio
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperCommand

from .cases import FAULT_CASES, STATUS_CASES
from .clients import ClientUnavailableError, client_kind
from .config import judge_config
from .contract import (
    CLIENT,
    Behaviour,
    Contract,
    contract_to_json,
    differences,
    load_contract,
    shipped_clients,
    shipped_versions,
)
from .findings import Finding, UnsafeForGymError, Verdict, worst
from .learn import measure
from .preflight import judge_command
from .report import differences_json, differences_table, findings_json, findings_report, refusal_json, stderr, stdout
from .status import judge_status
from .url import judge_url

EXIT = {Verdict.SAFE: 0, Verdict.UNSAFE: 1, Verdict.UNKNOWN: 2}

NEGATIVE = re.compile(r"-\d+")
MODES = "statuses, --config FILE, --url URL, --router-cmd CMD or --learn (see --help)"

Items = Annotated[
    list[str] | None,
    typer.Argument(metavar="[STATUS]...", help="Statuses to judge; with --config, overrides after --."),
]
Config = Annotated[Path | None, typer.Option(help="NeMo-RL YAML, prime-rl TOML, or gym-router's, to judge.")]
Url = Annotated[str | None, typer.Option(help="Running router to ask harmless questions.")]
RouterCmd = Annotated[
    str | None,
    typer.Option(metavar="CMD", help="Router to start before scripted backends; knows {port}, {backends_file}, ..."),
]
Learn = Annotated[bool, typer.Option("--learn", help="Measure the installed client; compare with the shipped table.")]
Client = Annotated[str, typer.Option(metavar="NAME", help=f"Who calls: {', '.join(shipped_clients())}.")]
Version = Annotated[
    str | None,
    typer.Option(
        "--version", "--gym", metavar="V", help="Its version, or 'installed'; the strictest table by default."
    ),
]
Save = Annotated[Path | None, typer.Option(help="With --learn: write the measured table here.")]
RealSleeps = Annotated[bool, typer.Option(help="With --learn: keep the client's pauses between tries.")]
TimeoutS = Annotated[float, typer.Option(min=0.1, help="With --url: seconds for each question.")]
HoldS = Annotated[float, typer.Option(min=0, help="With --url: seconds that a connection is left idle.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """A negative number is a wrong status, not an unknown option."""
        ctx.ignore_unknown_options = any(map(NEGATIVE.fullmatch, args))
        return super().parse_args(ctx, args)


@app.command(cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
def check(
    items: Items = None,
    *,
    config: Config = None,
    url: Url = None,
    router_cmd: RouterCmd = None,
    learn: Learn = False,
    client: Client = CLIENT,
    version: Version = None,
    save: Save = None,
    real_sleeps: RealSleeps = False,
    timeout_s: TimeoutS = 10.0,
    hold_s: HoldS = 2.0,
    as_json: AsJson = False,
) -> None:
    """Say whether NeMo-Gym, or another client, can live with a status, a configuration or a running router."""
    named = [option is not None for option in (config, url, router_cmd)]
    _one_thing([*named, learn, bool(items) and config is None], as_json=as_json)
    if learn:
        _learn(client, version, save, real_sleeps=real_sleeps, as_json=as_json)
    contract = _contract(client, version, as_json=as_json)
    if url is not None:
        options = {"timeout_s": timeout_s, "hold_s": hold_s}
        _tell(lambda: asyncio.run(judge_url(url, contract=contract, **options)), contract, as_json)
    if router_cmd is not None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the router goes first, however this ends
        _tell(lambda: asyncio.run(judge_command(router_cmd, contract)), contract, as_json)
    if config is not None:
        _tell(lambda: judge_config(config, overrides=items or (), contract=contract), contract, as_json)
    _tell(lambda: [judge_status(status, contract=contract) for status in _statuses(items, as_json)], contract, as_json)


def _one_thing(asked: list[bool], *, as_json: bool) -> None:
    if sum(asked) != 1:
        what = "only one thing can be judged at once" if any(asked) else "name one thing to judge"
        _refuse(f"{what}: {MODES}", as_json=as_json)


def _statuses(items: list[str] | None, as_json: bool) -> list[int]:
    for item in items or ():
        if not re.fullmatch(r"[2-5][0-9][0-9]", item):
            _refuse(f"{item!r} is not a status in 200..599", as_json=as_json)
    return [int(item) for item in items or ()]


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
        others = ", ".join(version for version in shipped_versions(contract.client) if version != contract.version)
        also = f" (--version knows {others} too)" if others else ""
        stdout().print(f"{worst(findings)}, by {contract.client} {contract.version}{also}")
    raise typer.Exit(EXIT[worst(findings)])


def _contract(client: str, version: str | None, *, as_json: bool) -> Contract:
    try:
        return load_contract(client, client_kind(client).version() if version == "installed" else version)
    except (LookupError, ClientUnavailableError) as error:
        _refuse(str(error), as_json=as_json)


def _learn(client: str, against: str | None, save: Path | None, *, real_sleeps: bool, as_json: bool) -> NoReturn:
    try:
        installed = client_kind(client).version()
        known = installed if installed in shipped_versions(client) else shipped_versions(client)[-1]
        shipped = _contract(client, against or known, as_json=as_json)
        measured = _measure(client, real_sleeps=real_sleeps)
        if save is not None:
            save.write_text(contract_to_json(measured), "utf-8")
    except (LookupError, ClientUnavailableError, OSError) as error:
        _refuse(str(error), as_json=as_json)
    if as_json:
        typer.echo(differences_json(differences(shipped, measured), measured, shipped))
    else:
        _tell_learned(measured, shipped, against)
    raise typer.Exit(1 if differences(shipped, measured) else 0)


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


def _measure(client: str, *, real_sleeps: bool) -> Contract:
    """Drive the real client through every case, with a progress bar on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=stderr(), transient=True) as bar:
        task = bar.add_task(client, total=len(STATUS_CASES) + len(FAULT_CASES))

        def progress(_name: str, _behaviour: Behaviour) -> None:
            bar.advance(task)

        return measure(client, client_kind(client), real_sleeps=real_sleeps, progress=progress)


def _refuse(message: str, *, as_json: bool) -> NoReturn:
    if as_json:
        typer.echo(refusal_json(message))
    else:
        stderr().print(message, style="red")
    raise typer.Exit(2)


def main() -> None:
    """Entry point of the command."""
    app()
