"""A body that stops half-way while the connection stays up: no client of NeMo-Gym would ever give up on it."""

from ..http1 import Framing, Response
from ..scripting import Connection, Script
from .base import Symptom
from .script import AnswerScript, ScriptFault


class StallBody(ScriptFault):
    """The head and half the body of the shard's real answer, in `framing`, then silence."""

    framing: Framing = Framing.LENGTH

    def symptoms(self) -> frozenset[Symptom]:
        """No whole answer comes."""
        return frozenset({Symptom.SILENT})

    def script(self) -> Script:
        """The script."""
        return _StallBody(self.framing)


class _StallBody(AnswerScript):
    def __init__(self, framing: Framing) -> None:
        self._framing = framing

    async def on_answer(self, connection: Connection, response: Response) -> None:
        half, _ = response.halves(self._framing)
        await connection.send(response.head(self._framing) + half)
        await connection.hold()
