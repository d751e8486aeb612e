"""A body that comes a byte at a time: each byte renews a timeout on silence, and only a deadline ends it."""

import asyncio

from pydantic import Field

from ..http1 import Framing, Response
from ..scripting import Connection
from .base import Symptom
from .script import AnswerFault


class DribbleBody(AnswerFault):
    """The head of the shard's real answer, then its body a byte every `interval_s` seconds, in `framing`."""

    interval_s: float = Field(default=0.2, gt=0, description="seconds between two bytes")
    framing: Framing = Framing.LENGTH

    def symptoms(self) -> frozenset[Symptom]:
        """No whole answer comes in time."""
        return frozenset({Symptom.SILENT})

    async def on_answer(self, connection: Connection, response: Response) -> None:
        """Send it byte by byte."""
        await connection.send(response.head(self.framing))
        for byte in b"".join(response.halves(self.framing)):
            await asyncio.sleep(self.interval_s)  # the pace is the fault
            await connection.send(bytes([byte]))
