"""Bytes that are no HTTP: another service on the port, or a broken TLS set-up. NeMo-Gym raises after three tries."""

from ..http1 import Request
from ..scripting import Connection
from .base import Symptom
from .script import ScriptFault


class Garbage(ScriptFault):
    """A line that is no status line answers each request, then FIN."""

    def symptoms(self) -> frozenset[Symptom]:
        """No parser takes it."""
        return frozenset({Symptom.BAD_HTTP})

    async def on_request(self, connection: Connection, _request: Request) -> None:
        """Say it."""
        await connection.send(b"SSH-2.0-OpenSSH_9.6\r\n")
        connection.fin()
