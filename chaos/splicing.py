"""JSON objects as bytes: a member is taken out, and the rest stays as it was written. Standard library only."""

import json
import re
from typing import Any

_DECODER = json.JSONDecoder()
_GAP = re.compile(r"[ \t\n\r]*")


def without_member(document: bytes, name: str) -> tuple[bytes, Any]:
    """The object's bytes without its last member of that name and the comma before it, and the member's value.

    What is no object, or has no such member, comes back as it is, with None.
    """
    try:
        text = document.decode()
        found = _find(text, name)
    except ValueError:
        return document, None
    if found is None:
        return document, None
    start, end, value = found
    return (text[:start] + text[end:]).encode(), value


def _find(text: str, name: str) -> tuple[int, int, Any] | None:
    """Where the last member of that name starts, with the comma before it, and ends; and its value."""
    position, found = _gap(text, 0), None
    if text[position : position + 1] != "{":
        return None
    start = position + 1
    while text[position : position + 1] in {"{", ","}:
        key, position = _DECODER.raw_decode(text, _gap(text, position + 1))
        position = _gap(text, position)
        value, end = _DECODER.raw_decode(text, _gap(text, position + 1))
        if key == name:
            found = start, end, value
        position = start = _gap(text, end)
    return found


def _gap(text: str, position: int) -> int:
    gap = _GAP.match(text, position)
    return position if gap is None else gap.end()
