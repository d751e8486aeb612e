"""A shard freezes: a hung collective, a driver that does not come back, a container that is out of CPU.

With the engine stopped the API server answers everything but generations, `/health` included. With the API server
stopped the kernel still accepts connections, and nothing ever comes back.
"""

import signal
from typing import Literal

from pydantic import Field

from .base import Symptom, Target
from .process import ProcessFault


class Stop(ProcessFault):
    """SIGSTOP."""

    process: Literal["server", "engine", "group"] = Field("engine", description="which of the shard's processes")

    def symptoms(self) -> frozenset[Symptom]:
        """Silence."""
        return frozenset({Symptom.SILENT})

    async def inject(self, target: Target) -> None:
        """Stop it."""
        target.shard.signal(self.process, signal.SIGSTOP)
