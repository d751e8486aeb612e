"""Generation is paused, as it is for a weight update: the shard takes requests and keeps them until it may go on.

To "abort" answers what is in flight with what there is of it, to "wait" lets it end, to "keep" freezes it. All the
while `/health` says 200, and the metrics look like those of a wedged engine.
"""

from typing import ClassVar, Literal

from pydantic import Field

from .admin import AdminFault


class Pause(AdminFault):
    """`POST /pause`, healed by `POST /resume`."""

    mode: Literal["abort", "wait", "keep"] = Field("abort", description="what becomes of requests in flight")
    undo: ClassVar[str] = "/resume"

    @property
    def route(self) -> str:
        """The route that does the harm, with its query."""
        return f"/pause?mode={self.mode}"
