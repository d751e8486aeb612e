"""Answers come whole and late: a busy link, a slow shard. Nothing is broken, and nothing may be declared so."""

from pydantic import Field

from .base import Symptom, Target
from .toxic import ToxicFault, toxics_of


class Latency(ToxicFault):
    """Each piece of an answer is held back."""

    ms: int = Field(300, gt=0, description="milliseconds that every piece of an answer waits")
    jitter_ms: int = Field(0, ge=0, description="milliseconds more or less than that, by chance")

    def symptoms(self) -> frozenset[Symptom]:
        """A right answer, late."""
        return frozenset({Symptom.SLOW})

    async def inject(self, target: Target) -> None:
        """Delay what the shard says."""
        await toxics_of(target).add("latency", latency=self.ms, jitter=self.jitter_ms)
