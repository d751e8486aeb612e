"""Two recorded runs, request by request and verdict by verdict: pure, and no more than what their folders say.

A request is a client's call in a phase whose calls follow from the scenario and the seed, the baseline and the load.
The recovery's are left out: how many there are depends on how long it takes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import TypeVar

from .checkers.base import Status
from .history import Attempt, Ending, History
from .recording import RunFolder

_OPEN_ENDED = "recovery"
K = TypeVar("K")
Request = tuple[str, str]  # the call's tag and its path


class Agreement(StrEnum):
    """What became of one request in two runs."""

    SAME = "same"  # the same outcome, by the same answers
    DETOUR = "other tries"  # the same outcome, by other answers on the way
    DIFFERS = "differs"
    ONLY_ONE = "only in one"  # a rollout that was lost earlier in the other run, or a run that was cut off


@dataclass(frozen=True, slots=True)
class Fate:
    """What a client made of a request, and the answers it met until then; what repeats at once counts once."""

    outcome: str
    answers: tuple[str, ...]

    @property
    def end(self) -> tuple[str, tuple[str, ...]]:
        """The outcome and the answer that decided it."""
        return self.outcome, self.answers[-1:]

    def __str__(self) -> str:
        return f"{self.outcome} after {' '.join(self.answers) or 'no answer'}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the requests and the verdicts of two runs compare; None is what a run does not have."""

    requests: Mapping[Request, tuple[Fate | None, Fate | None]]
    verdicts: Mapping[str, tuple[Status | None, Status | None]]

    def counts(self) -> dict[Agreement, int]:
        """How many requests there are of each agreement."""
        found = [agreement(*fates) for fates in self.requests.values()]
        return {kind: found.count(kind) for kind in Agreement}

    def differing(self) -> dict[Request, tuple[Fate | None, Fate | None]]:
        """The requests that did not go the same way."""
        return {key: fates for key, fates in self.requests.items() if agreement(*fates) is not Agreement.SAME}

    @property
    def same_verdicts(self) -> bool:
        """Whether every check says the same of both runs."""
        return all(a is b for a, b in self.verdicts.values())

    @property
    def same_outcomes(self) -> bool:
        """Whether every request ended the same way."""
        counts = self.counts()
        return not counts[Agreement.DIFFERS] and not counts[Agreement.ONLY_ONE]


def compare(a: RunFolder, b: RunFolder) -> Comparison:
    """Compare two runs."""
    fates = [fates_of(run.history) for run in (a, b)]
    verdicts = [{name: verdict.status for name, verdict in run.verdicts.items()} for run in (a, b)]
    return Comparison(
        requests={key: (fates[0].get(key), fates[1].get(key)) for key in _keys(*fates)},
        verdicts={key: (verdicts[0].get(key), verdicts[1].get(key)) for key in _keys(*verdicts)},
    )


def agreement(a: Fate | None, b: Fate | None) -> Agreement:
    """What two fates of one request have in common."""
    if a is None or b is None:
        return Agreement.ONLY_ONE
    if a == b:
        return Agreement.SAME
    return Agreement.DETOUR if a.end == b.end else Agreement.DIFFERS


def fates_of(history: History | None) -> dict[Request, Fate]:
    """The fate of every request whose call ended, in the order of their ends."""
    if history is None:
        return {}
    met: dict[Request, list[Attempt]] = {}
    for attempt in sorted(history.attempts, key=lambda attempt: attempt.started):
        met.setdefault((attempt.call, attempt.path), []).append(attempt)
    return {
        (call.call, call.path): Fate(call.outcome, _answers(met.get((call.call, call.path), [])))
        for call in history.calls
        if not call.call.startswith(_OPEN_ENDED)
    }


def _answers(attempts: list[Attempt]) -> tuple[str, ...]:
    seen = (str(attempt.status) if attempt.ending is Ending.COMPLETE else str(attempt.ending) for attempt in attempts)
    return tuple(answer for answer, _ in groupby(seen))


def _keys(*mappings: Mapping[K, object]) -> list[K]:
    return list(dict.fromkeys(key for mapping in mappings for key in mapping))
