"""The engine is put to sleep, to leave its memory to a training step; nobody told the router.

What is in flight is answered with what there is of it, and what comes waits until it is woken up.
"""

from typing import ClassVar

from pydantic import Field

from .admin import AdminFault


class Sleep(AdminFault):
    """`POST /sleep`, healed by `POST /wake_up`."""

    level: int = Field(1, ge=0, le=2, description="0: no scheduling; 1: weights moved out; 2: weights dropped")
    undo: ClassVar[str] = "/wake_up"

    @property
    def route(self) -> str:
        """The route that does the harm, with its query."""
        return f"/sleep?level={self.level}"
