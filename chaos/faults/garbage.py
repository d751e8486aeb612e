"""Bytes that are no HTTP: another service on the port, or a broken TLS set-up. NeMo-Gym raises after three tries."""

from ..http1 import Request
from ..scripting import Connection, Script
from .base import Symptom
from .script import ScriptFault


class Garbage(ScriptFault):
    """A line that is no status line answers each request, then FIN."""

    def symptoms(self) -> frozenset[Symptom]:
        """No parser takes it."""
        return frozenset({Symptom.BAD_HTTP})

    def script(self) -> Script:
        """The script."""
        return _Garbage()


class _Garbage(Script):
    async def on_request(self, connection: Connection, _request: Request) -> None:
        await connection.send(b"SSH-2.0-OpenSSH_9.6\r\n")
        connection.fin()
