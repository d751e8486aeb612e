"""How two JSON texts differ, path by path: what was dropped, added, moved, changed, or only written otherwise.

Numbers are compared as they are written, so that 1.0 and 1, or a rounded logprob, do not pass as the same.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

_EXCERPT = 60


class Kind(StrEnum):
    """What became of a value."""

    DROPPED = "dropped"
    ADDED = "added"
    MOVED = "moved"
    CHANGED = "changed"
    REWRITTEN = "rewritten"  # the same number in other digits


@dataclass(frozen=True, slots=True)
class Change:
    """One difference; `to` is where a moved value is now."""

    kind: Kind
    path: str
    was: str = ""
    now: str = ""
    to: str = ""

    def __str__(self) -> str:
        match self.kind:
            case Kind.DROPPED:
                return f"{self.path} dropped (was {self.was})"
            case Kind.ADDED:
                return f"{self.path} added ({self.now})"
            case Kind.MOVED:
                return f"{self.path} moved to {self.to}"
            case Kind.CHANGED | Kind.REWRITTEN:
                return f"{self.path} {self.kind}: {self.was} became {self.now}"


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _Gone:
    path: str
    value: Any


def differences(sent: bytes, got: bytes, aliases: Collection[tuple[str, str]] = ()) -> list[Change]:
    """What differs between two JSON texts, order and white space aside; `aliases` are pairs of paths for one thing.

    Raises ValueError for what is no JSON.
    """
    changes: list[Change] = []
    dropped: list[_Gone] = []
    added: list[_Gone] = []
    for change in _walk(_parse(sent), _parse(got), ""):
        match change:
            case (Kind.DROPPED, _Gone() as gone):
                dropped.append(gone)
            case (Kind.ADDED, _Gone() as gone):
                added.append(gone)
            case Change():
                changes.append(change)
    return [*changes, *_paired(dropped, added, aliases)]


def _parse(text: bytes) -> Any:
    return json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_Number)


def _walk(sent: Any, got: Any, path: str) -> Iterator[Change | tuple[Kind, _Gone]]:
    if isinstance(sent, dict) and isinstance(got, dict):
        for key in sent:
            where = f"{path}.{key}" if path else key
            if key in got:
                yield from _walk(sent[key], got[key], where)
            else:
                yield Kind.DROPPED, _Gone(where, sent[key])
        for key in got.keys() - sent.keys():
            yield Kind.ADDED, _Gone(f"{path}.{key}" if path else key, got[key])
    elif isinstance(sent, list) and isinstance(got, list) and len(sent) == len(got):
        for index, (left, right) in enumerate(zip(sent, got, strict=True)):
            yield from _walk(left, right, f"{path}[{index}]")
    elif type(sent) is not type(got) or sent != got:
        yield Change(
            Kind.REWRITTEN if _same_number(sent, got) else Kind.CHANGED, path or "the whole", _shown(sent), _shown(got)
        )


def _same_number(sent: Any, got: Any) -> bool:
    """Whether every reader takes both for the same number: to all of them a fraction is a double, an integer exact."""
    if not (isinstance(sent, _Number) and isinstance(got, _Number)):
        return False
    return Decimal(sent) == Decimal(got) or (not sent.lstrip("-").isdigit() and float(sent) == float(got))


def _paired(dropped: list[_Gone], added: list[_Gone], aliases: Collection[tuple[str, str]]) -> Iterator[Change]:
    """A dropped value that came up elsewhere, or within what was added, has moved."""
    left = sorted(added, key=lambda gone: gone.path)
    for gone in dropped:
        moved = next((other for other in left if _same(gone, other, aliases)), None)
        to = moved.path if moved else next((path for other in left for path in _within(gone, other)), "")
        if moved is not None:
            left.remove(moved)
        yield Change(Kind.MOVED if to else Kind.DROPPED, gone.path, _shown(gone.value), to=to)
    for gone in left:
        yield Change(Kind.ADDED, gone.path, now=_shown(gone.value))


def _same(gone: _Gone, other: _Gone, aliases: Collection[tuple[str, str]]) -> bool:
    """Whether the value is the same, and so telling that it is the same by no chance, or its name says so too."""
    return bool(gone.value == other.value) and (_telling(gone.value) or (gone.path, other.path) in aliases)


def _telling(value: Any) -> bool:
    return isinstance(value, str | list | dict) and not isinstance(value, _Number) and bool(value)


def _within(gone: _Gone, other: _Gone) -> Iterator[str]:
    if isinstance(other.value, dict) and _telling(gone.value):
        yield from (f"{other.path}.{key}" for key, value in other.value.items() if value == gone.value)


def _shown(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."


def _text(value: Any) -> str:
    """The value as JSON, its numbers as they were written."""
    match value:
        case _Number():
            return str(value)
        case dict():
            return f"{{{', '.join(f'{json.dumps(key)}: {_text(inner)}' for key, inner in value.items())}}}"
        case list():
            return f"[{', '.join(map(_text, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False)
