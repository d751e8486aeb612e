"""Connections stay open and carry nothing: a dead peer without a reset, a NAT that has forgotten."""

from pydantic import Field

from ..toxiproxy import Stream
from .base import Symptom, Target
from .toxic import ToxicFault, toxics_of


class Stall(ToxicFault):
    """No byte passes in one direction."""

    stream: Stream = Field("downstream", description="upstream: requests do not arrive; downstream: answers do not")

    def symptoms(self) -> frozenset[Symptom]:
        """Silence."""
        return frozenset({Symptom.SILENT})

    async def inject(self, target: Target) -> None:
        """Drop every byte; the toxic's removal closes the connections that lost some."""
        await toxics_of(target).add("timeout", stream=self.stream, timeout=0)
