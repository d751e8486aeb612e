"""What the faults that Toxiproxy makes have in common: one toxic, and healing by removing it."""

from typing import ClassVar

from ..toxiproxy import ToxicProxy
from .base import Fault, Layer, Target


class ToxicFault(Fault):
    """A fault on the network between router and shard."""

    layer: ClassVar[Layer] = Layer.TOXIC

    async def heal(self, target: Target) -> None:
        """Remove the toxic and listen."""
        await toxics_of(target).clear()


def toxics_of(target: Target) -> ToxicProxy:
    """The proxy in front of a shard; a target without one is a mistake of whoever built it."""
    if target.toxics is None:
        raise ValueError(f"shard {target.shard.index} has no Toxiproxy in front of it")
    return target.toxics
