"""Clients that leave: a rollout is cancelled, a trainer dies. Their work must end, and no shard is to blame for it."""

import asyncio
import itertools
import socket
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from ..asking import MODEL, chat_body, dial, post
from ..legs import LINGER_ZERO
from .base import Layer, RouterFault, RouterHandle, Symptom


@dataclass(frozen=True, slots=True)
class _Manner:
    """How one client leaves: how much of its request it sends, when and how it goes."""

    share: float
    after_s: float
    reset: bool


_MANNERS = tuple(
    _Manner(share, after_s, reset)
    for share, after_s in ((1.0, 0.0), (1.0, 0.01), (1.0, 0.1), (0.5, 0.01))
    for reset in (False, True)
)


class HangUps(RouterFault):
    """`count` clients ask and leave by FIN or RST: at once, after 10 ms, after 100 ms, and in the middle of the upload.

    The calls are named hang-up.0, hang-up.1, ...
    """

    layer: ClassVar[Layer] = Layer.CLIENT
    count: int = Field(default=24, ge=1, description="clients")
    max_tokens: int = Field(default=512, ge=1, description="tokens asked for, enough to keep a shard busy for 0.1 s")

    def symptoms(self) -> frozenset[Symptom]:
        """The shards are well."""
        return frozenset({Symptom.OK})

    async def strike(self, router: RouterHandle, entry_url: str) -> str:  # noqa: ARG002 - clients need only the URL
        """Ask and leave, all at once. Raises RuntimeError if every client was answered first."""
        manners = itertools.islice(itertools.cycle(_MANNERS), self.count)
        left = await asyncio.gather(
            *(self._hang_up(entry_url, f"hang-up.{number}", manner) for number, manner in enumerate(manners))
        )
        if not any(left):
            raise RuntimeError(f"all {self.count} clients were answered before they could leave")
        return f"{sum(left)} of {self.count} clients left before their answer"

    async def _hang_up(self, entry_url: str, call: str, manner: _Manner) -> bool:
        """Returns whether the client left first."""
        body = chat_body(call, "Go on.", model=MODEL, max_tokens=self.max_tokens, ignore_eos=True)
        wire = post(entry_url, body)
        try:
            async with dial(entry_url) as (reader, writer):
                if manner.reset:
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
                writer.write(wire[: len(wire) - int(len(body) * (1 - manner.share))])
                async with asyncio.timeout(manner.after_s):
                    await reader.read(1)
        except TimeoutError:
            return True
        except OSError:
            return False
        return False
