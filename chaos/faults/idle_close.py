"""A server that closes its idle connections early: what is sent into a closing one is lost without an answer."""

import asyncio

from pydantic import Field

from ..scripting import Connection, Script
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

    def script(self) -> Script:
        """The script."""
        return _IdleClose(self.after_s)


class _IdleClose(Script):
    def __init__(self, after_s: float) -> None:
        self._after_s = after_s

    def on_play(self, connection: Connection) -> None:
        if connection.idle:
            connection.fin()

    async def on_idle(self, connection: Connection) -> None:
        await asyncio.sleep(self._after_s)
        connection.fin()
