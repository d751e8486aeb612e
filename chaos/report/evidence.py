"""The attempts behind a failed check, each with how far it got."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..checkers.base import Status, Verdict
from ..checkers.evidence import deliveries
from ..history import Attempt, Delivery, Ending, History, Served

SHOWN = 60  # attempts under one check; a broken router fails thousands
_REACHED = {
    Delivery.ANSWERED: "answered{status}",
    Delivery.CANCELLED: "cancelled",
    Delivery.RUNNING: "no end recorded",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One attempt in words. Times in seconds: `at` from the start of the run, `took` None while it is open."""

    call: str
    path: str
    number: int
    at: float
    took: float | None
    saw: str
    reached: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A check that did not pass, and the attempts of the calls that it names; `more` of them are not shown."""

    check: str
    status: Status
    why: str
    lines: tuple[str, ...]
    steps: tuple[Step, ...]
    more: int


def failures(history: History | None, verdicts: Mapping[str, Verdict], zero: float) -> list[Failure]:
    """Every check that did not pass, a failed one before one that could not tell."""
    order = (Status.FAIL, Status.UNKNOWN)
    found = [(name, verdict) for name, verdict in verdicts.items() if verdict.status in order]
    found.sort(key=lambda pair: order.index(pair[1].status))
    return [_failure(name, verdict, history, zero) for name, verdict in found]


def _failure(name: str, verdict: Verdict, history: History | None, zero: float) -> Failure:
    steps = () if history is None else tuple(_steps(history, (verdict.why, *verdict.evidence), zero))
    return Failure(name, verdict.status, verdict.why, verdict.evidence, steps[:SHOWN], max(0, len(steps) - SHOWN))


def _steps(history: History, lines: Sequence[str], zero: float) -> Iterator[Step]:
    named = named_calls(history, lines)
    for attempt, number, given in deliveries(history):
        if (attempt.call, attempt.path) in named:
            yield Step(
                call=attempt.call,
                path=attempt.path,
                number=number + 1,
                at=attempt.started - zero,
                took=None if attempt.ended is None else attempt.ended - attempt.started,
                saw=saw(attempt),
                reached=reached(attempt, given),
            )


def named_calls(history: History, lines: Sequence[str]) -> set[tuple[str, str]]:
    """The (call, path) that these lines of evidence speak of, by the call's own name or by its rollout's."""
    words = {word.rstrip(":") for line in lines for word in re.split(r"[\s(),]+", line)}
    text = "\n".join(lines)
    calls = {
        (attempt.call, attempt.path)
        for attempt in history.attempts
        if attempt.call in words and f"{attempt.call} {attempt.path}" in text
    }
    return calls | {(call.call, call.path) for call in history.calls if call.rollout in words}


def saw(attempt: Attempt) -> str:
    """What the client got, such as "500 (deadline)" or "truncated 200"."""
    status = "" if attempt.status is None else str(attempt.status)
    ending = "" if attempt.ending is Ending.COMPLETE else attempt.ending.replace("_", " ")
    why = " ".join(part for part in (attempt.reason, attempt.detail) if part)
    return " ".join(part for part in (ending, status, why and f"({why})") if part)


def reached(attempt: Attempt, given: Sequence[Served]) -> str:
    """How far it got: each shard that worked on it, and how that ended."""
    if not given:
        return "nobody: nothing listened" if attempt.ending is Ending.REFUSED else "the router, and no shard"
    return "; then ".join(
        f"shard {served.shard}: {_REACHED[served.ending].format(status=f' {served.status}' if served.status else '')}"
        + ("" if served.ended is None else f" after {served.ended - served.started:.2f} s")
        for served in given
    )
