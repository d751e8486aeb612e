"""A scripted port in front of one shard: a transparent relay until a script is played."""

import asyncio
import socket
from types import TracebackType
from typing import Self

from .legs import Leg, Listener
from .scripting import RELAY, Connection, Script
from .waiting import wait_until

_BACKLOG = 1024
_FILLERS = 16
_FULL_AFTER_S = 0.2
_CLOSE_WITHIN_S = 5.0


class Interposer:
    """Listens on a loopback port of its own in front of the shard on `upstream_port`."""

    port: int

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._connections: set[Connection] = set()
        self._fillers: list[socket.socket] = []
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
        self._drain()
        if script.listens:
            self._listener.resume()
        else:
            await self._listener.pause()
            await self._fill()

    async def __aenter__(self) -> Self:
        self._listener = Listener(self._accept, _BACKLOG)
        self.port = self._listener.port
        self._listener.resume()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drain()
        await self._listener.close()
        for connection in tuple(self._connections):
            connection.stop()
        if not await wait_until(lambda: not self._connections, _CLOSE_WITHIN_S):
            raise TimeoutError(f"{len(self._connections)} connections do not end, {_CLOSE_WITHIN_S} s after RST")

    async def _fill(self) -> None:
        """Fill the queue of connections that nobody accepts; the kernel drops every SYN after that.

        A queue of length 0 takes one connection on Linux; it is seen to be full when a connection is not made.
        """
        for _ in range(_FILLERS):
            filler = socket.socket()
            filler.setblocking(False)
            self._fillers.append(filler)
            try:
                async with asyncio.timeout(_FULL_AFTER_S):
                    await asyncio.get_running_loop().sock_connect(filler, ("127.0.0.1", self.port))
            except TimeoutError:
                return
        raise OSError(f"port {self.port} still takes connections with a full queue: no black hole on this kernel")

    def _drain(self) -> None:
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()

    def _accept(self) -> Leg:
        connection = Connection(self._upstream_port, self._script, self._connections.discard)
        self._connections.add(connection)
        return connection.peer
