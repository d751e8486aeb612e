"""Answers come a few bytes at a time, so that something always arrives and the end never does.

It defeats every time limit that begins anew with each byte.
"""

from pydantic import Field

from .base import Symptom, Target
from .toxic import ToxicFault, toxics_of


class Dribble(ToxicFault):
    """Answers in slices with pauses."""

    slice_bytes: int = Field(16, gt=0, description="bytes that pass at a time")
    every_ms: int = Field(500, gt=0, description="milliseconds between two slices")

    def symptoms(self) -> frozenset[Symptom]:
        """No whole answer in time."""
        return frozenset({Symptom.SILENT})

    async def inject(self, target: Target) -> None:
        """Slice what the shard says; Toxiproxy's unit of the pause is the microsecond."""
        await toxics_of(target).add(
            "slicer", average_size=self.slice_bytes, size_variation=0, delay=self.every_ms * 1000
        )
