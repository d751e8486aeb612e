"""A request is read and the connection reset: the server's process died with the request in its hands."""

from ..http1 import Request
from ..scripting import Connection
from .base import Symptom
from .script import ScriptFault


class ResetAfterRequest(ScriptFault):
    """RST once the request has come whole, with no byte of an answer."""

    def symptoms(self) -> frozenset[Symptom]:
        """The connection ends without an answer."""
        return frozenset({Symptom.RESET})

    async def on_request(self, connection: Connection, _request: Request) -> None:
        """RST."""
        connection.rst()
