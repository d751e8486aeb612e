"""A port is closed, and every connection with it, while the shard is well: a firewall that rejects, a lost route."""

from .base import Symptom, Target
from .toxic import ToxicFault, toxics_of


class Refused(ToxicFault):
    """Nothing listens any more."""

    def symptoms(self) -> frozenset[Symptom]:
        """Refused."""
        return frozenset({Symptom.REFUSED})

    def pooled_symptoms(self) -> frozenset[Symptom]:
        """The connection's end."""
        return frozenset({Symptom.CLOSED, Symptom.RESET})

    async def inject(self, target: Target) -> None:
        """Disable the proxy, which also drops its connections."""
        await toxics_of(target).disable()
