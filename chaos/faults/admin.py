"""What the faults by a shard's own admin routes have in common: it is told to do harm, and told to stop doing it.

vLLM serves these routes with VLLM_SERVER_DEV_MODE=1, as training set-ups run it.
"""

import asyncio
from contextlib import suppress
from typing import ClassVar
from urllib.parse import urlsplit

from .base import Symptom, Target
from .process import ProcessFault

_DONE_WITHIN_S = 20.0
_UNDONE_WITHIN_S = 5.0
_OK = 200


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
        status = await tell(target.shard.url, self.route, within_s=_DONE_WITHIN_S)
        if status != _OK:
            raise RuntimeError(f"{target.shard.url}{self.route} was answered with {status}")

    async def heal(self, target: Target) -> None:
        """Tell it to go on; a shard that cannot be told is started again."""
        with suppress(OSError, TimeoutError, ValueError):
            await tell(target.shard.url, self.undo, within_s=_UNDONE_WITHIN_S)
        await super().heal(target)


async def tell(url: str, route: str, *, within_s: float) -> int:
    """POST nothing to a route; the status. Raises OSError, TimeoutError, and ValueError for what is no status line."""
    parts = urlsplit(url)
    async with asyncio.timeout(within_s):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            head = f"POST {route} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            writer.write(head.encode())
            _, status, *_ = (await reader.readline()).split()
            return int(status)
        finally:
            writer.transport.abort()
