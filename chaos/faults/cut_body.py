"""A body that is cut: passed on, it is a truncated answer that NeMo-Gym does not retry, and the rollout is lost.

Cut between two chunks, or without a length at all, it even looks like the end of the body to a careless reader.
"""

from ..http1 import Framing, Response
from ..scripting import Connection
from .base import Symptom
from .script import AnswerFault, How, end


class CutBody(AnswerFault):
    """The head and half the body of the shard's real answer, in `framing`, then the end of the connection, by `how`."""

    how: How = "fin"
    framing: Framing = Framing.LENGTH

    def symptoms(self) -> frozenset[Symptom]:
        """A truncated body, but for a close-delimited one that FIN makes whole: half a JSON document."""
        looks_whole = self.framing is Framing.CLOSE and self.how == "fin"
        return frozenset({Symptom.WRONG if looks_whole else Symptom.TRUNCATED})

    async def on_answer(self, connection: Connection, response: Response) -> None:
        """Send the first half and end."""
        half, _ = response.halves(self.framing)
        await connection.send(response.head(self.framing) + half)
        end(connection, self.how)
