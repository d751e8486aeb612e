"""Waiting with a bound."""

import asyncio
import time
from collections.abc import Callable


async def wait_until(condition: Callable[[], bool], within_s: float, every_s: float = 0.01) -> bool:
    """Ask `condition` every `every_s` seconds until it holds, at most `within_s` seconds; returns whether it did."""
    give_up = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= give_up:
            return False
        await asyncio.sleep(every_s)
    return True
