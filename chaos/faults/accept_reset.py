"""A port that accepts and resets at once: a crashing server, a proxy whose connection table is full."""

from ..scripting import Connection
from .base import Symptom
from .script import ScriptFault


class AcceptReset(ScriptFault):
    """Connections are accepted and reset (RST) before anything is read; those that exist are reset too."""

    def symptoms(self) -> frozenset[Symptom]:
        """The connection ends without an answer."""
        return frozenset({Symptom.RESET})

    def on_play(self, connection: Connection) -> None:
        """RST."""
        connection.rst()

    def on_accept(self, connection: Connection) -> None:
        """RST."""
        connection.rst()
