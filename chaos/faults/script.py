"""What all scripted faults share: they are played on the shard's port, and healing plays the relay again."""

from typing import ClassVar, Literal

import orjson

from ..http1 import Headers, Request, Response
from ..interposer import Interposer
from ..scripting import RELAY, Connection, Script
from .base import Fault, Layer, Symptom, Target

How = Literal["fin", "rst"]


class ScriptFault(Fault, Script):
    """A fault that is a script. All connections share it, so it keeps nothing of any one of them."""

    layer: ClassVar[Layer] = Layer.SCRIPT

    async def inject(self, target: Target) -> None:
        """Play it."""
        await _interposer(target).play(self)

    async def heal(self, target: Target) -> None:
        """Relay again; connections that it has broken are closed."""
        await _interposer(target).play(RELAY)


class AnswerFault(ScriptFault):
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


class HeadersFault(AnswerFault):
    """Adds header lines that NeMo-Gym's HTTP parser refuses to the shard's real answers."""

    def symptoms(self) -> frozenset[Symptom]:
        """A parser with the same limits refuses it."""
        return frozenset({Symptom.BAD_HTTP})

    def more_headers(self, response: Response) -> Headers:
        """The lines to add."""
        raise NotImplementedError

    async def on_answer(self, connection: Connection, response: Response) -> None:
        """Send it whole, with more headers."""
        await connection.send(response.head(extra=self.more_headers(response)) + response.body)


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
