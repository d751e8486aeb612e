"""How long something may take, as people write it."""

import re

_UNITS = {"s": 1, "m": 60, "h": 3600}
_BUDGET = re.compile(r"(\d+(?:\.\d+)?)([smh])")


def parse_budget(text: str) -> float:
    """Seconds of "90s", "3m" or "1h". Raises ValueError."""
    found = _BUDGET.fullmatch(text.strip())
    if found is None or float(found[1]) == 0:
        raise ValueError(f"budget {text!r}: a number and s, m or h would be right, such as 90s or 10m")
    return float(found[1]) * _UNITS[found[2]]
