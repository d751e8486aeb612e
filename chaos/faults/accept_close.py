"""A port that accepts and closes at once: a load balancer with nothing behind it, a server that is starting."""

from ..scripting import Connection
from .base import Symptom
from .script import ScriptFault


class AcceptClose(ScriptFault):
    """Connections are accepted and closed (FIN) before anything is read; those that exist are closed too."""

    def symptoms(self) -> frozenset[Symptom]:
        """The connection ends without an answer."""
        return frozenset({Symptom.CLOSED})

    def on_play(self, connection: Connection) -> None:
        """FIN."""
        connection.fin()

    def on_accept(self, connection: Connection) -> None:
        """FIN."""
        connection.fin()
