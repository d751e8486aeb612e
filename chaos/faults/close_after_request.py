"""A request is read and the connection closed: the server's worker died with the request in its hands."""

from ..http1 import Request
from ..scripting import Connection
from .base import Symptom
from .script import ScriptFault


class CloseAfterRequest(ScriptFault):
    """FIN once the request has come whole, with no byte of an answer."""

    def symptoms(self) -> frozenset[Symptom]:
        """The connection ends without an answer."""
        return frozenset({Symptom.CLOSED})

    async def on_request(self, connection: Connection, _request: Request) -> None:
        """FIN."""
        connection.fin()
