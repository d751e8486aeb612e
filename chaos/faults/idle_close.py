"""A server that closes its idle connections early: what is sent into a closing one is lost without an answer."""

import asyncio

from pydantic import Field

from ..scripting import Connection
from .base import Symptom
from .script import ScriptFault


class IdleClose(ScriptFault):
    """A connection gets FIN `after_s` seconds after an answer unless it is used again; idle ones get it at once."""

    after_s: float = Field(default=0.05, ge=0, description="seconds of idleness")

    def symptoms(self) -> frozenset[Symptom]:
        """A new connection shows nothing."""
        return frozenset({Symptom.OK})

    def pooled_symptoms(self) -> frozenset[Symptom]:
        """The idle connection is closed."""
        return frozenset({Symptom.CLOSED})

    def on_play(self, connection: Connection) -> None:
        """FIN, if nothing is asked or answered on it."""
        if connection.idle:
            connection.fin()

    async def on_idle(self, connection: Connection) -> None:
        """FIN, in a while."""
        await asyncio.sleep(self.after_s)
        connection.fin()
