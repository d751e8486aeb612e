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

    @property
    def what(self) -> str:
        """Key and value, the value as YAML and TOML write it; the key alone where there is no value."""
        if self.value == "":
            return self.key
        words = {None: "null", True: "true", False: "false"}
        plain = words[self.value] if self.value is None or isinstance(self.value, bool) else str(self.value)
        return f"{self.key} = {plain}"

    @property
    def why(self) -> str:
        """The problem, and what would be right."""
        return f"{self.problem}. Right: {self.right}" if self.right else self.problem

    def __str__(self) -> str:
        return f"{self.source}: {self.what}: {self.why}" if self.source else f"{self.what}: {self.why}"


def worst(findings: Sequence[Finding]) -> Verdict:
    """The verdict on all of them together: unsafe before unknown before safe; caution alone is safe."""
    for verdict in (Verdict.UNSAFE, Verdict.UNKNOWN):
        if any(finding.verdict is verdict for finding in findings):
            return verdict
    return Verdict.SAFE


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
