"""What a checker is and what it returns."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..history import History

_SHOWN = 20  # pieces of evidence in a verdict; a broken router leaves thousands


class Status(StrEnum):
    """A verdict in one word. Unknown is what a checker says that could not look, and never passes."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one checker makes of one history: `why` in a sentence, `evidence` one line for each offending record."""

    status: Status
    why: str
    evidence: tuple[str, ...] = ()


Checker = Callable[[History], Verdict]


def passed(why: str) -> Verdict:
    """The invariant held."""
    return Verdict(Status.PASS, why)


def unknown(why: str) -> Verdict:
    """The history does not say."""
    return Verdict(Status.UNKNOWN, why)


def unless(offences: Sequence[str], what: str, *, held: str) -> Verdict:
    """Fail with `offences` as evidence ("3 {what}"), or pass with `held` if there are none."""
    if not offences:
        return passed(held)
    return Verdict(Status.FAIL, f"{len(offences)} {what}: {offences[0]}", tuple(offences[:_SHOWN]))


def worst(statuses: Iterable[Status]) -> Status:
    """Fail over unknown over pass; nothing at all is unknown."""
    seen = set(statuses) or {Status.UNKNOWN}
    return next(status for status in (Status.FAIL, Status.UNKNOWN, Status.PASS) if status in seen)
