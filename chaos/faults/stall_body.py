"""A body that stops half-way while the connection stays up: no client of NeMo-Gym would ever give up on it."""

from ..http1 import Framing, Response
from ..scripting import Connection
from .base import Symptom
from .script import AnswerFault


class StallBody(AnswerFault):
    """The head and half the body of the shard's real answer, in `framing`, then silence."""

    framing: Framing = Framing.LENGTH

    def symptoms(self) -> frozenset[Symptom]:
        """No whole answer comes."""
        return frozenset({Symptom.SILENT})

    async def on_answer(self, connection: Connection, response: Response) -> None:
        """Send the first half and fall silent."""
        half, _ = response.halves(self.framing)
        await connection.send(response.head(self.framing) + half)
        await connection.hold()
