"""A body that comes a byte at a time: each byte renews a timeout on silence, and only a deadline ends it."""

import asyncio

from pydantic import Field

from ..http1 import Framing, Response
from ..scripting import Connection, Script
from .base import Symptom
from .script import AnswerScript, ScriptFault


class DribbleBody(ScriptFault):
    """The head of the shard's real answer, then its body a byte every `interval_s` seconds, in `framing`."""

    interval_s: float = Field(default=0.2, gt=0, description="seconds between two bytes")
    framing: Framing = Framing.LENGTH

    def symptoms(self) -> frozenset[Symptom]:
        """No whole answer comes in time."""
        return frozenset({Symptom.SILENT})

    def script(self) -> Script:
        """The script."""
        return _DribbleBody(self.interval_s, self.framing)


class _DribbleBody(AnswerScript):
    def __init__(self, interval_s: float, framing: Framing) -> None:
        self._interval_s = interval_s
        self._framing = framing

    async def on_answer(self, connection: Connection, response: Response) -> None:
        await connection.send(response.head(self._framing))
        for byte in b"".join(response.halves(self._framing)):
            await asyncio.sleep(self._interval_s)  # the pace is the fault
            await connection.send(bytes([byte]))
