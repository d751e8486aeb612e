"""A connection ends inside an answer: a shard that dies while it writes, a proxy with a byte limit."""

from pydantic import Field

from .base import Symptom, Target
from .toxic import ToxicFault, toxics_of


class Cut(ToxicFault):
    """FIN after some bytes of what the shard says on a connection."""

    after_bytes: int = Field(400, gt=0, description="bytes of a connection, heads included, that pass before the end")

    def symptoms(self) -> frozenset[Symptom]:
        """An answer without its end, or without a whole head if so few bytes pass."""
        return frozenset({Symptom.TRUNCATED, Symptom.CLOSED})

    async def inject(self, target: Target) -> None:
        """Limit what the shard may say."""
        await toxics_of(target).add("limit_data", bytes=self.after_bytes)
