"""A connection that ends inside the response headers: to a client the same as no answer, after the work was done."""

from ..http1 import Response
from ..scripting import Connection
from .base import Symptom
from .script import AnswerFault, How, end


class CutHeaders(AnswerFault):
    """Half the head of the shard's real answer, then the end of the connection, by `how`."""

    how: How = "fin"

    def symptoms(self) -> frozenset[Symptom]:
        """The connection ends before the head is whole."""
        return frozenset({Symptom.CLOSED if self.how == "fin" else Symptom.RESET})

    async def on_answer(self, connection: Connection, response: Response) -> None:
        """Send half the head and end."""
        head = response.head()
        await connection.send(head[: len(head) // 2])
        end(connection, self.how)
