"""What a probe makes of what it saw: a word and its reasons, and the findings of one group.

A probe that crashes, or does not come to an end, leaves UNKNOWN, never a pass.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field

from ..findings import Finding, Group, Word

_WORST = (Word.UNSAFE, Word.BOUNDED, Word.SAFE)


@dataclass(frozen=True, slots=True)
class Result:
    """One check's verdict; the fields are those of `Finding`."""

    word: Word
    seen: str
    right: str = ""
    evidence: Sequence[str] = ()


def safe(seen: str, evidence: Sequence[str] = ()) -> Result:
    """As it should be."""
    return Result(Word.SAFE, seen, evidence=evidence)


def worst(words: Sequence[Word]) -> Word:
    """The gravest of some words, SAFE of none."""
    return next((word for word in _WORST if word in words), Word.SAFE)


@dataclass
class Notes:
    """Collects the findings of one group; a check that `checks` does not name is an error."""

    group: Group
    checks: Sequence[str]
    findings: dict[str, Finding] = field(default_factory=dict)

    async def take(self, check: str, judging: Awaitable[Result], within_s: float) -> None:
        """Wait for a check's result, at most `within_s` seconds."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(within_s):
                result = await judging
        except TimeoutError:
            result = _unknown(f"the check did not come to an end in {within_s:g} s")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no verdict about the router
            result = _unknown(f"the check failed: {type(error).__name__}: {error}")
        self.note(check, result, time.monotonic() - began)

    async def take_all(self, judgings: Mapping[str, Awaitable[Result]], within_s: float) -> None:
        """Wait for independent checks, all at once, each at most `within_s` seconds."""
        await asyncio.gather(*(self.take(check, judging, within_s) for check, judging in judgings.items()))

    def note(self, check: str, result: Result, seconds: float) -> None:
        """Take a result down."""
        if check not in self.checks:
            raise ValueError(f"unknown check {check!r} of {self.group!r}; known: {', '.join(self.checks)}")
        self.findings[check] = Finding(
            group=self.group,
            check=check,
            word=result.word,
            seen=result.seen,
            right=result.right,
            evidence=tuple(result.evidence),
            seconds=round(seconds, 3),
        )

    def close(self, why: str) -> list[Finding]:
        """All findings in order, those that are missing as UNKNOWN because of `why`."""
        for check in self.checks:
            if check not in self.findings:
                self.note(check, _unknown(why), 0.0)
        return [self.findings[check] for check in self.checks]


def _unknown(why: str) -> Result:
    return Result(
        Word.UNKNOWN, why, "Look at router.log, and run it again: this is the judge's failure or the set-up's."
    )
