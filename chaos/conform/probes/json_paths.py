"""How two JSON texts differ, path by path: what was dropped, added, moved, changed, or only written otherwise.

Numbers are compared as they are written, so that 1.0 and 1, or a rounded logprob, do not pass as the same.
"""

import json
from collections.abc import Iterator
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


def differences(sent: bytes, got: bytes) -> list[Change]:
    """What differs between two JSON texts, order and white space aside. Raises ValueError for what is no JSON."""
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
    return [*changes, *_paired(dropped, added)]


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


def _paired(dropped: list[_Gone], added: list[_Gone]) -> Iterator[Change]:
    """A dropped value that came up elsewhere has moved; only what is telling counts as the same value."""
    left = sorted(added, key=lambda gone: gone.path)
    for gone in dropped:
        new = next((other for other in left if _telling(gone, other) and other.value == gone.value), None)
        if new is None:
            inside = next((where for other in left for where in _inside(gone, other)), "")
            if inside:
                yield Change(Kind.MOVED, gone.path, _shown(gone.value), to=inside)
            else:
                yield Change(Kind.DROPPED, gone.path, _shown(gone.value))
        else:
            left.remove(new)
            yield Change(Kind.MOVED, gone.path, _shown(gone.value), to=new.path)
    for gone in left:
        yield Change(Kind.ADDED, gone.path, now=_shown(gone.value))


def _telling(gone: _Gone, other: _Gone) -> bool:
    return gone.value not in (None, True, False, "", [], {}) or _parent(gone.path) == _parent(other.path)


def _inside(gone: _Gone, other: _Gone) -> Iterator[str]:
    """Where a telling value stands within an added object."""
    if isinstance(other.value, dict) and gone.value not in (None, True, False, "", [], {}):
        for key, value in other.value.items():
            if value == gone.value:
                yield f"{other.path}.{key}"


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _shown(value: Any) -> str:
    text = value if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."
