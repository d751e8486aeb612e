"""A whole node is lost: the shard, and whatever runs beside it, in one moment.

On Ray (`--fleet ray`) these are the shard's actor, its processes and the node's raylet with all its workers; healing is
another node, with another actor on the same port. Elsewhere a shard is all that its node has. The kernel of this one
machine lives on and closes the connections; a node that takes its kernel along looks like `black_hole`.
"""

from .base import Symptom, Target
from .process import ProcessFault


class KillNode(ProcessFault):
    """SIGKILL of everything on the shard's node."""

    def symptoms(self) -> frozenset[Symptom]:
        """A dead port."""
        return frozenset({Symptom.REFUSED, Symptom.CLOSED, Symptom.RESET})

    async def inject(self, target: Target) -> None:
        """Kill it."""
        await target.shard.kill_node()
