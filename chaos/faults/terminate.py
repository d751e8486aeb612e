"""A shard is told to end, as a scheduler or an upgrade does.

vLLM then answers what is in flight with a 200 that looks whole and is not: `finish_reason` is "abort". A new request
gets a 500 until, some tenths of a second later, the port closes.
"""

import signal

from .base import Symptom, Target
from .process import ProcessFault


class Terminate(ProcessFault):
    """SIGTERM to the API server."""

    def symptoms(self) -> frozenset[Symptom]:
        """A cut answer, a 500 or a closed port, depending on how late one asks."""
        return frozenset({Symptom.WRONG, Symptom.STATUS, Symptom.REFUSED, Symptom.CLOSED, Symptom.RESET})

    async def inject(self, target: Target) -> None:
        """Tell it."""
        target.shard.signal("server", signal.SIGTERM)
