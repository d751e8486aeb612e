"""Findings and differences as a person or a program wants to read them. Formatting only."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from .contract import Behaviour, Contract, Difference
from .findings import Finding, Verdict, worst

_SHORT = 30  # columns that a key and its value may take beside its verdict and reason
_COLOURS = {
    Verdict.SAFE: "green",
    Verdict.CAUTION: "yellow",
    Verdict.UNSAFE: "bold red",
    Verdict.UNKNOWN: "magenta",
}


def findings_report(findings: Sequence[Finding]) -> Group:
    """One row a finding, under the source where they share one; a long key has a line of its own."""
    sources = {finding.source for finding in findings}
    shared = len(sources) == 1
    table = _short_table(findings) if shared and _fit(findings) else _long_table(findings, shared=shared)
    return Group(Text(findings[0].source, style="bold"), table) if shared and sources != {""} else Group(table)


def _fit(findings: Sequence[Finding]) -> bool:
    return all(len(finding.what) <= _SHORT for finding in findings)


def _long_table(findings: Sequence[Finding], *, shared: bool) -> Table:
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        where = "" if shared else f"\n{finding.source}"
        table.add_row(_verdict(finding), Text.assemble((finding.what, "bold"), (where, "dim"), f"\n{finding.why}"))
    return table


def _short_table(findings: Sequence[Finding]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("what", "verdict", "why"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        table.add_row(Text(finding.what), _verdict(finding), Text(finding.why))
    return table


def _verdict(finding: Finding) -> Text:
    return Text(finding.verdict, style=_COLOURS[finding.verdict])


def differences_table(found: Sequence[Difference], against: Contract) -> Table:
    """One row a difference, the shipped row beside the measured one."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("case", f"{against.client} {against.version} (shipped)", "measured"):
        table.add_column(name, overflow="fold")
    for difference in found:
        table.add_row(difference.name, _words(difference.expected), _words(difference.measured))
    return table


def _words(behaviour: Behaviour | None) -> str:
    return "no such row" if behaviour is None else str(behaviour)


def findings_json(findings: Sequence[Finding], contract: Contract) -> str:
    """`{"verdict", "client", "version", "findings": [...]}`."""
    rows = [asdict(finding) for finding in findings]
    head = {"verdict": worst(findings), "client": contract.client, "version": contract.version}
    return _json({**head, "findings": rows})


def refusal_json(message: str) -> str:
    """`{"verdict", "error", "findings": []}`, for bad input."""
    return _json({"verdict": Verdict.UNKNOWN, "error": message, "findings": []})


def differences_json(found: Sequence[Difference], measured: Contract, against: Contract) -> str:
    """`{"same", "client", "version", "against", "cases", "differences": [...]}`."""
    head = {
        "same": not found,
        "client": measured.client,
        "version": measured.version,
        "against": against.version,
        "cases": len(measured.statuses) + len(measured.faults),
    }
    return _json({**head, "differences": [asdict(difference) for difference in found]})


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()


def stdout() -> Console:
    """What the command was asked for."""
    return Console(highlight=False)


def stderr() -> Console:
    """What it says while it works, and when it cannot."""
    return Console(stderr=True, highlight=False)
