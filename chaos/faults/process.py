"""What the faults on a shard's processes have in common: they heal by having the shard serve again."""

from typing import ClassVar

from .base import Fault, Layer, Target

READY_WITHIN_S = 30.0


class ProcessFault(Fault):
    """A signal to a shard's processes."""

    layer: ClassVar[Layer] = Layer.PROCESS

    async def heal(self, target: Target) -> None:
        """Resume the shard, or start it again on its port."""
        await target.shard.ensure_ready(READY_WITHIN_S)
