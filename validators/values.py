"""Numbers and names as people write them into configurations, read the way pydantic will."""

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Number:
    """A value, or what is wrong with it (`problem`)."""

    value: float = math.nan
    problem: str | None = None


def seconds_of(value: Any) -> Number:
    """A positive, finite number of seconds; "600" counts, true does not."""
    number = _number(value)
    if number is None:
        return Number(problem="not a number of seconds")
    if math.isinf(number) and number > 0:
        return Number(problem="no deadline at all")
    if math.isnan(number) or number <= 0:
        return Number(problem="not a positive number of seconds")
    return Number(number)


def port_of(value: Any, *, lowest: int = 1) -> Number:
    """A port in `lowest`..65535."""
    number = _number(value)
    if number is None or not math.isfinite(number) or number != int(number):
        return Number(problem="not a port")
    if not lowest <= number <= _HIGHEST_PORT:
        return Number(problem=f"outside {lowest}..{_HIGHEST_PORT}")
    return Number(number)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be, or None."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.8)
    return near[0] if near else None
