"""Connections are reset: a crashed peer, a load balancer that lost its table.

Toxiproxy 2.12 resets new connections; those that are open when the toxic comes end with a FIN and no answer (measured).
"""

from pydantic import Field

from .base import Symptom, Target
from .toxic import ToxicFault, toxics_of


class Reset(ToxicFault):
    """RST some time after a connection has carried its first bytes."""

    after_ms: int = Field(0, ge=0, description="milliseconds from the connection's first bytes to the RST")

    def symptoms(self) -> frozenset[Symptom]:
        """RST."""
        return frozenset({Symptom.RESET})

    def pooled_symptoms(self) -> frozenset[Symptom]:
        """FIN, in this release."""
        return frozenset({Symptom.RESET, Symptom.CLOSED})

    async def inject(self, target: Target) -> None:
        """Reset connections."""
        await toxics_of(target).add("reset_peer", timeout=self.after_ms)
