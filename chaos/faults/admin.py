"""What the faults by a shard's own admin routes have in common: it is told to do harm, and told to stop doing it.

vLLM serves these routes with VLLM_SERVER_DEV_MODE=1, as training set-ups run it.
"""

from http import HTTPStatus
from typing import ClassVar

from ..asking import post, status_of
from .base import Symptom, Target
from .process import ProcessFault

_DONE_WITHIN_S = 20.0
_UNDONE_WITHIN_S = 5.0


class AdminFault(ProcessFault):
    """One route that does the harm, and one that undoes it."""

    undo: ClassVar[str]

    @property
    def route(self) -> str:
        """The route that does the harm, with its query."""
        raise NotImplementedError

    def symptoms(self) -> frozenset[Symptom]:
        """Silence: a request is taken, and waits."""
        return frozenset({Symptom.SILENT})

    async def inject(self, target: Target) -> None:
        """Tell it. Raises RuntimeError if the shard does not do it."""
        url = target.shard.url
        status = await status_of(url, post(url, b"", self.route), within_s=_DONE_WITHIN_S)
        if status != HTTPStatus.OK:
            raise RuntimeError(f"{url}{self.route} was answered with {status or 'nothing'}")

    async def heal(self, target: Target) -> None:
        """Tell it to go on; a shard that cannot be told is started again."""
        url = target.shard.url
        await status_of(url, post(url, b"", self.undo), within_s=_UNDONE_WITHIN_S)
        await super().heal(target)
