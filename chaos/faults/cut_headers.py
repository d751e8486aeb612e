"""A connection that ends inside the response headers: to a client the same as no answer, after the work was done."""

from ..http1 import Response
from ..scripting import Connection, Script
from .base import Symptom
from .script import AnswerScript, How, ScriptFault, end


class CutHeaders(ScriptFault):
    """Half the head of the shard's real answer, then the end of the connection, by `how`."""

    how: How = "fin"

    def symptoms(self) -> frozenset[Symptom]:
        """The connection ends before the head is whole."""
        return frozenset({Symptom.CLOSED if self.how == "fin" else Symptom.RESET})

    def script(self) -> Script:
        """The script."""
        return _CutHeaders(self.how)


class _CutHeaders(AnswerScript):
    def __init__(self, how: How) -> None:
        self._how = how

    async def on_answer(self, connection: Connection, response: Response) -> None:
        head = response.head()
        await connection.send(head[: len(head) // 2])
        end(connection, self._how)
