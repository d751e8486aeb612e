"""A doubled Content-Length, as a relay makes that copies headers and adds its own: parsers refuse the answer."""

from ..http1 import Response
from ..scripting import Connection, Script
from .base import Symptom
from .script import AnswerScript, ScriptFault


class DoubleLength(ScriptFault):
    """The shard's real answer with its Content-Length twice."""

    def symptoms(self) -> frozenset[Symptom]:
        """A parser with the limits of NeMo-Gym's client refuses it."""
        return frozenset({Symptom.BAD_HTTP})

    def script(self) -> Script:
        """The script."""
        return _DoubleLength()


class _DoubleLength(AnswerScript):
    async def on_answer(self, connection: Connection, response: Response) -> None:
        again = (b"content-length", b"%d" % len(response.body))
        await connection.send(response.head(extra=[again]) + response.body)
