"""What a check has to say, and the one error that says it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """How bad it is. Only UNSAFE refuses; UNKNOWN means that the check could not be made."""

    SAFE = "safe"
    CAUTION = "caution"
    UNSAFE = "unsafe"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth telling: where it was read, what it is, why it matters, what would be right.

    `source` is a file, a URL or an override; `key` and `value` are as the user wrote them.
    """

    verdict: Verdict
    source: str
    key: str
    value: Any
    problem: str
    right: str = ""

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source else ""
        right = f" Right: {self.right}" if self.right else ""
        return f"{where}{self.key} = {self.value!r}: {self.problem}{right}"


class UnsafeForGymError(ValueError):
    """A user asked for something that NeMo-Gym retries without bound, takes for a success, or cannot use.

    `findings` holds every finding of the check, the harmless ones too.
    """

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        told = [f for f in findings if f.verdict in (Verdict.UNSAFE, Verdict.UNKNOWN)]
        super().__init__("\n".join(map(str, told)))


class CannotTellError(UnsafeForGymError):
    """A user named something that cannot be read or asked, so there is no verdict on it."""


def cannot_tell(source: str, key: str, value: Any, problem: str, right: str = "") -> CannotTellError:
    """The error for one unreadable input."""
    return CannotTellError([Finding(Verdict.UNKNOWN, source, key, value, problem, right)])
