"""A shard whose node has vanished: connecting gets no answer at all, and existing connections fall silent.

Toxiproxy always accepts, so this is a listening socket with a full queue, for which the kernel drops every SYN.
"""

from typing import ClassVar

from ..scripting import Connection
from .base import Symptom
from .script import ScriptFault


class BlackHole(ScriptFault):
    """SYNs are dropped, and nothing comes back on the connections that exist."""

    listens: ClassVar[bool] = False

    def symptoms(self) -> frozenset[Symptom]:
        """Silence, from connecting on."""
        return frozenset({Symptom.SILENT})

    def on_play(self, connection: Connection) -> None:
        """Fall silent."""
        connection.freeze()

    def on_accept(self, connection: Connection) -> None:
        """Fall silent."""
        connection.freeze()  # it was accepted while the port was being closed
