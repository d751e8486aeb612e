"""A shard's process dies at once: out of memory, a CUDA error, a lost node.

With the API server the port is gone, while its engine lives on as an orphan. With the engine the server says 500 to
what is in flight, answers `/health` for a moment more, and then leaves too.
"""

import signal
from typing import Literal

from pydantic import Field

from .base import Symptom, Target
from .process import ProcessFault


class Kill(ProcessFault):
    """SIGKILL."""

    process: Literal["server", "engine", "group"] = Field("group", description="which of the shard's processes")

    def symptoms(self) -> frozenset[Symptom]:
        """A dead port; for the engine first the 500 of a server that has lost it."""
        gone = {Symptom.REFUSED, Symptom.CLOSED, Symptom.RESET}
        return frozenset(gone | {Symptom.STATUS} if self.process == "engine" else gone)

    async def inject(self, target: Target) -> None:
        """Kill it."""
        target.shard.signal(self.process, signal.SIGKILL)
