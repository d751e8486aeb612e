"""Scorecards side by side: what is counted, what is told together, and how it is called. Values only, no markup."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ..scenario import SUFFIX, cases, shipped
from .findings import BY_FAULT, Finding, Group, Scorecard, Word

WORDS: Mapping[Word, str] = {
    Word.SAFE: "as a training run needs it",
    Word.BOUNDED: "the client gives up, or gets less than it could, but comes to an end",
    Word.UNSAFE: "the client tries without end, gets no answer or a changed one, or could complete no rollout",
    Word.NOT_APPLICABLE: "the router has no such thing, or the check has nothing to act on",
    Word.UNKNOWN: "it could not be judged, and counts neither for the router nor against it",
}
ASKED: Mapping[Group, str] = {
    Group.ONE: "One of two shards has the fault. Does every rollout complete on the other?",
    Group.ALL: "Every shard has the fault. Is the client told to give up at once, or served all the same?",
    Group.RECOVERY: "The fault is healed. Do all shards serve again, and soon?",
    Group.PAYLOAD: "Do the requests reach the shard, and its answers the client, byte for byte?",
    Group.HEADERS: "Which headers get through, in both directions?",
    Group.PATHS: "Do /tokenize and the other paths reach the shard?",
    Group.AFFINITY: "Does a session stay on its shard, and what moves when a shard dies and returns?",
    Group.CANCELLATION: "When a client leaves, does the shard's work end?",
    Group.LOAD: "Do large bodies and many requests at once get through?",
    Group.RESTART: "What do clients see while the router is started again?",
}
_NUMBER = re.compile(r"(?<!\d)(?![1-5]\d\d(?!\d))\d+(\.\d+)?")
_WORST_FIRST = (Word.UNSAFE, Word.BOUNDED, Word.UNKNOWN, Word.NOT_APPLICABLE, Word.SAFE)


@dataclass(frozen=True, slots=True)
class Fold:
    """Findings of one router and group that have one verdict and one remedy."""

    findings: tuple[Finding, ...]  # at least one

    @property
    def first(self) -> Finding:
        """The one that speaks for all."""
        return self.findings[0]

    def sightings(self) -> list[list[Finding]]:
        """Together are those that saw the same but for numbers that are no HTTP statuses."""
        alike: dict[str, list[Finding]] = {}
        for finding in self.findings:
            alike.setdefault(_NUMBER.sub("0", finding.seen), []).append(finding)
        return list(alike.values())


@dataclass(frozen=True, slots=True)
class Row:
    """Checks, and what each router's finding is; None where a router was not asked."""

    checks: tuple[str, ...]
    cells: tuple[Finding | None, ...]


def named(card: Scorecard) -> str:
    """The router's title and version, as far as they are known."""
    return f"{card.title} {card.version}".strip()


def counts(findings: Iterable[Finding]) -> dict[Word, int]:
    """How often each verdict was given, best first; those that never were are left out."""
    given = Counter(finding.word for finding in findings)
    return {word: given[word] for word in Word if given[word]}


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """As a reader looks for them: faults by their names, whichever was tried first."""
    return sorted(findings, key=lambda finding: finding.check if finding.group in BY_FAULT else "")


def folds(card: Scorecard) -> dict[Group, list[Fold]]:
    """What was found of each group, the worst first."""
    found: dict[Group, dict[tuple[Word, str], list[Finding]]] = {group: {} for group in Group}
    for finding in ordered(card.findings):
        found[finding.group].setdefault((finding.word, finding.right), []).append(finding)
    return {
        group: [Fold(tuple(alike[key])) for key in sorted(alike, key=lambda key: _WORST_FIRST.index(key[0]))]
        for group, alike in found.items()
        if alike
    }


def anchors(cards: Sequence[Scorecard]) -> dict[tuple[str, Group, str], str]:
    """Where each finding is told: the name of its fold, which is that of the fold's first finding."""
    return {
        (card.router, *finding.key): anchor(card.router, fold.first)
        for card in cards
        for group in folds(card).values()
        for fold in group
        for finding in fold.findings
    }


def anchor(router: str, finding: Finding | None = None) -> str:
    """A name for links of a router or of a finding. No two have the same."""
    parts = (router,) if finding is None else (router, finding.group.slug, finding.check)
    return ".".join(re.sub(r"[^\w-]", lambda mark: f"~{ord(mark[0]):x}", part, flags=re.ASCII) for part in parts)


def heading(group: Group) -> str:
    """A name for links of a group, which no router and no finding has."""
    return f"group.{group.slug}"


def rows(cards: Sequence[Scorecard], place: Callable[[Scorecard, Finding], str]) -> dict[Group, list[Row]]:
    """A row for each check. Checks share one where each router's findings have the same `place`."""
    found = [{finding.key: finding for finding in card.findings} for card in cards]
    merged: dict[tuple[Group, tuple[str, ...]], Row] = {}
    for group, check in dict.fromkeys(one.key for one in ordered(chain(*(card.findings for card in cards)))):
        cells = tuple(card.get((group, check)) for card in found)
        places = tuple("" if cell is None else place(card, cell) for card, cell in zip(cards, cells, strict=True))
        row = merged.get((group, places), Row((), cells))
        merged[group, places] = replace(row, checks=(*row.checks, check))
    return {group: here for group in Group if (here := [row for (of, _), row in merged.items() if of is group])}


def excerpt(lines: Sequence[str], room: int) -> tuple[list[str], int]:
    """The first lines, of at most `room` characters together, and how many lines are left out or cut short."""
    kept: list[str] = []
    for number, line in enumerate(lines):
        if len(line) > room:
            return [*kept, f"{line[:room]}..."] if room else kept, len(lines) - number
        kept.append(line)
        room -= len(line)
    return kept, 0


def judges(cards: Sequence[Scorecard]) -> dict[str, list[str]]:
    """What judged, and on which machine: the routers of each."""
    found: dict[str, list[str]] = {}
    for card in cards:
        about = {"client": card.client, **card.versions, **card.machine}
        found.setdefault(", ".join(f"{name} {value}" for name, value in about.items()), []).append(card.router)
    return found


def faults(cards: Sequence[Scorecard]) -> dict[str, str]:
    """What the checks that are shipped faults do, by their names."""
    checks = {finding.check for card in cards for finding in card.findings}
    paths = {path.name.removesuffix(SUFFIX): path for path in shipped()}
    return {name: cases(path)[0].scenario.title for name, path in paths.items() if name in checks}
