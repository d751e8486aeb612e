"""What all scripted faults share: a script is played on the shard's port, and healing plays the relay again.

The scripts that several faults are made of are here too; a fault's own script is in its own file.
"""

from typing import ClassVar, Literal

import orjson

from ..http1 import Headers, Request, Response
from ..interposer import Interposer
from ..scripting import RELAY, Connection, Script
from .base import Fault, Layer, Target

How = Literal["fin", "rst"]


class ScriptFault(Fault):
    """A fault that is one script."""

    layer: ClassVar[Layer] = Layer.SCRIPT

    def script(self) -> Script:
        """The script for the shard's port."""
        raise NotImplementedError

    async def inject(self, target: Target) -> None:
        """Play the script."""
        await _interposer(target).play(self.script())

    async def heal(self, target: Target) -> None:
        """Relay again; connections that the script has broken are closed."""
        await _interposer(target).play(RELAY)


class AnswerScript(Script):
    """Does something else to the shard's real answers; one that is no 200 passes unchanged."""

    async def on_request(self, connection: Connection, request: Request) -> None:
        """Fetch the real answer."""
        response = await connection.fetch(request)
        if response.status == 200:  # noqa: PLR2004
            await self.on_answer(connection, response)
        else:
            await connection.send(response.wire())

    async def on_answer(self, connection: Connection, response: Response) -> None:
        """Do it."""
        raise NotImplementedError


class MoreHeaders(AnswerScript):
    """Adds header lines to the shard's real answers."""

    def __init__(self, extra: Headers) -> None:
        self._extra = extra

    async def on_answer(self, connection: Connection, response: Response) -> None:
        """Send it whole, with more headers."""
        await connection.send(response.head(extra=self._extra) + response.body)


def end(connection: Connection, how: How) -> None:
    """End a connection by FIN or RST."""
    if how == "fin":
        connection.fin()
    else:
        connection.rst()


def error_body(status: int) -> bytes:
    """An error as vLLM words it."""
    message = "injected by the chaos suite"
    error = {"message": message, "type": "InternalServerError", "param": None, "code": status}
    return orjson.dumps({"error": error})


def _interposer(target: Target) -> Interposer:
    if target.interposer is None:
        raise ValueError(f"no interposer stands in front of shard {target.shard.index}")
    return target.interposer
