"""A shard is told to end, as a scheduler or an upgrade does.

vLLM 0.32 then kills its engine as soon as it has told it to end, and how far the engine gets decides: what is in flight
is answered with a 200 that looks whole and is not (`finish_reason` is "abort"), or with a 500, or with nothing at all
until the client leaves. A new request gets a 500 until, some tenths of a second later, the port closes.
"""

import signal

from .base import Symptom, Target
from .process import ProcessFault


class Terminate(ProcessFault):
    """SIGTERM to the API server."""

    def symptoms(self) -> frozenset[Symptom]:
        """A cut answer, a 500, silence or a closed port, depending on how late one asks."""
        gone = {Symptom.REFUSED, Symptom.CLOSED, Symptom.RESET}
        return frozenset({Symptom.WRONG, Symptom.STATUS, Symptom.SILENT, *gone})

    async def inject(self, target: Target) -> None:
        """Tell it."""
        target.shard.signal("server", signal.SIGTERM)
