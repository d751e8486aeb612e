"""A scripted port in front of one shard: a transparent relay until a script is played."""

from types import TracebackType
from typing import Self

from .legs import Leg, Listen, Listener
from .scripting import RELAY, Connection, Script
from .waiting import wait_until

_BACKLOG = 1024
_CLOSE_WITHIN_S = 5.0


class Interposer:
    """Listens on a loopback port of its own in front of the shard on `upstream_port`."""

    port: int

    def __init__(self, upstream_port: int, listen: Listen = Listener) -> None:
        self._listen = listen
        self._upstream_port = upstream_port
        self._connections: dict[Connection, None] = {}  # in order: a run in virtual time repeats itself
        self._script = RELAY

    @property
    def url(self) -> str:
        """Where the router goes, without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"

    async def play(self, script: Script) -> None:
        """Switch to `script` for new connections and for those that exist.

        Work in flight goes on, unless the old script has broken its connection or the new one's `on_play` does.
        """
        self._script = script
        for connection in tuple(self._connections):
            connection.switch(script)
        if script.listens:
            self._listener.resume()
        else:
            await self._listener.block()

    async def __aenter__(self) -> Self:
        self._listener = self._listen(self._accept, _BACKLOG)
        self.port = self._listener.port
        self._listener.resume()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._listener.close()
        for connection in tuple(self._connections):
            connection.stop()
        if not await wait_until(lambda: not self._connections, _CLOSE_WITHIN_S):
            raise TimeoutError(f"{len(self._connections)} connections do not end, {_CLOSE_WITHIN_S} s after RST")

    def _accept(self) -> Leg:
        connection = Connection(self._upstream_port, self._script, self._forget)
        self._connections[connection] = None
        return connection.peer

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
