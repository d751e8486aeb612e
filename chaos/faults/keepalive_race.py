"""A server that closes a kept connection just as the next request arrives, and never said it would.

The request had no answer and may be sent again, once, on a fresh connection; the shard is not at fault.
"""

from ..http1 import Request
from ..scripting import Connection
from .base import Symptom
from .script import ScriptFault


class KeepaliveRace(ScriptFault):
    """The first request of a connection is answered; the second is read and answered with FIN."""

    def symptoms(self) -> frozenset[Symptom]:
        """A new connection shows nothing."""
        return frozenset({Symptom.OK})

    def pooled_symptoms(self) -> frozenset[Symptom]:
        """A connection that has had an answer ends without another."""
        return frozenset({Symptom.CLOSED})

    async def on_request(self, connection: Connection, request: Request) -> None:
        """Answer the first and close on the second."""
        if connection.requests > 1:
            connection.fin()
        else:
            await super().on_request(connection, request)
