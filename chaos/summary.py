"""What a run says at its end: a table for people, JUnit XML and JSON for machines."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from rich.table import Table
from rich.text import Text

from .checkers.base import Status, worst
from .recording import JUNIT, VERDICTS
from .runner import Result

_STYLE = {Status.PASS: "green", Status.FAIL: "bold red", Status.UNKNOWN: "yellow"}
EXIT = {Status.PASS: 0, Status.FAIL: 1, Status.UNKNOWN: 2}


def exit_code(results: Sequence[Result]) -> int:
    """0 if every case passed, 1 if one failed, else 2: something could not be told."""
    return EXIT[worst(result.status for result in results)]


def table(results: Sequence[Result]) -> Table:
    """One row a case: verdict, what the clients saw, rollouts completed, time, and the checks that did not pass."""
    rows = Table(title=f"{sum(r.status is Status.PASS for r in results)} of {len(results)} cases passed")
    for column in ("case", "verdict", "answers", "rollouts", "s", "did not pass"):
        rows.add_column(column, justify="right" if column == "s" else "left", overflow="fold")
    for result in results:
        rows.add_row(
            Text(result.case.name),
            Text(result.status, style=_STYLE[result.status]),
            Text(answers(result)),
            Text(rollouts(result)),
            f"{result.seconds:.1f}",
            Text("\n".join(name for name, verdict in result.verdicts.items() if verdict.status is not Status.PASS)),
        )
    return rows


def reasons(results: Sequence[Result]) -> list[str]:
    """One line for each reason why a case did not pass."""
    return [f"{result.case.name}: {failure}" for result in results for failure in result.failures()]


def answers(result: Result) -> str:
    """The statuses that clients saw, with how often, such as "200x48 500x2"; other endings by name."""
    counts: dict[str, int] = {}
    for attempt in result.history.attempts if result.history else ():
        seen = str(attempt.status) if attempt.ending == "complete" else attempt.ending
        counts[seen] = counts.get(seen, 0) + 1
    return " ".join(f"{seen}x{count}" for seen, count in sorted(counts.items()))


def rollouts(result: Result) -> str:
    """How many rollouts completed, such as "11/11"."""
    if result.history is None:
        return "-"
    done = sum(rollout.completed for rollout in result.history.rollouts)
    return f"{done}/{len(result.history.rollouts)}"


def as_json(result: Result) -> dict[str, Any]:
    """A case's verdicts, for `verdicts.json`."""
    return {
        "case": result.case.name,
        "status": result.status,
        "seconds": round(result.seconds, 3),
        "answers": answers(result),
        "rollouts": rollouts(result),
        "verdicts": {
            name: {"status": verdict.status, "why": verdict.why, "evidence": list(verdict.evidence)}
            for name, verdict in result.verdicts.items()
        },
    }


def write_verdicts(result: Result) -> None:
    """Write `verdicts.json` and `junit.xml` beside the case's history."""
    (result.folder / VERDICTS).write_bytes(orjson.dumps(as_json(result), option=orjson.OPT_INDENT_2))
    write_junit([result], result.folder / JUNIT)


def write_junit(results: Sequence[Result], path: Path) -> None:
    """Write one JUnit `testcase` a case: a failed one is a `failure`, one that could not be told an `error`."""
    suite = ET.Element(
        "testsuite",
        name="gym-chaos",
        tests=str(len(results)),
        failures=str(sum(result.status is Status.FAIL for result in results)),
        errors=str(sum(result.status is Status.UNKNOWN for result in results)),
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    for result in results:
        case = ET.SubElement(
            suite, "testcase", classname="gym-chaos", name=result.case.name, time=f"{result.seconds:.3f}"
        )
        if result.status is not Status.PASS:
            kind = "failure" if result.status is Status.FAIL else "error"
            ET.SubElement(case, kind, message=result.failures()[0]).text = "\n".join(result.failures())
    ET.indent(suite)
    path.parent.mkdir(parents=True, exist_ok=True)
    ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
