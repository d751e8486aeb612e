"""A scorecard on a terminal: words that can be read without colour, and below them what would be right."""

from collections.abc import Iterator, Sequence

from rich.console import Group as Renderables
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from .board import named
from .findings import BY_FAULT, Finding, Group, Scorecard, Word
from .verdict import ALSO

_STYLE = {
    Word.SAFE: "green",
    Word.BOUNDED: "yellow",
    Word.UNSAFE: "bold red",
    Word.NOT_APPLICABLE: "dim",
    Word.UNKNOWN: "magenta",
}


def scorecard(card: Scorecard) -> RenderableType:
    """Faults with their three words, the other groups below, what to mend at the end."""
    others = [finding for finding in card.findings if finding.group not in BY_FAULT]
    tables = [table for table in (_faults(card), _others(others)) if table.row_count]
    for first in tables[:1]:
        first.title = named(card)
    return Renderables(*tables, *_to_mend(card.findings), Text(_counted(card), style="bold"))


def _faults(card: Scorecard) -> Table:
    words = card.words()
    rows = Table("fault on", "one shard", "every shard", "recovery")
    checks = dict.fromkeys(finding.check for finding in card.findings if finding.group in BY_FAULT)
    for check in sorted(checks):
        rows.add_row(check, *(_word(words.get((group, check))) for group in BY_FAULT))
    return rows


def _others(found: Sequence[Finding]) -> Table:
    rows = Table("group", "check", "verdict", "seen")
    for finding in found:
        rows.add_row(finding.group, finding.check, _word(finding.word), Text(finding.seen, overflow="fold"))
    return rows


def _word(word: Word | None) -> Text:
    return Text("-" if word is None else word, style="" if word is None else _STYLE[word])


def _to_mend(found: Sequence[Finding]) -> Iterator[RenderableType]:
    """Each piece of advice once, with the checks that call for it and what one of them saw."""
    advice: dict[str, dict[Group, list[Finding]]] = {}
    for finding in found:
        for right in filter(None, finding.right.split(ALSO)):
            advice.setdefault(right, {}).setdefault(finding.group, []).append(finding)
    for right, groups in advice.items():
        yield Text(f"\n{right}", style="bold")
        for group, calls in groups.items():
            checks = ", ".join(finding.check for finding in calls)
            yield Text.assemble(f"  {group}: {checks}", (f"\n    {calls[0].check}: {calls[0].seen}", "dim"))


def _counted(card: Scorecard) -> str:
    counts = [f"{sum(one.word is word for one in card.findings)} {word}" for word in Word]
    return f"\n{', '.join(counts)}; {card.seconds:.0f} s" + ("" if card.complete else "; INCOMPLETE: interrupted")
