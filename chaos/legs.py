"""One TCP connection as the thing that faults are made of: bytes, a FIN, an RST.

Used by the wiretap and the interposer. It knows no HTTP.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Protocol, cast

LINGER_ZERO = struct.pack("ii", 1, 0)  # closing sends RST
_FILLERS = 16
_FULL_AFTER_S = 0.2


class Owner(Protocol):
    """What a leg tells about its peer."""

    def data(self, leg: "Leg", data: bytes) -> None:
        """The peer has sent bytes."""

    def ended(self, leg: "Leg") -> None:
        """The peer has sent FIN: no more bytes from it, but it may still read."""

    def lost(self, leg: "Leg", *, reset: bool) -> None:
        """The connection is gone; `reset` unless it was closed in an orderly way or by us."""


class Leg(asyncio.Protocol):
    """One end of a TCP connection. What is sent before the connection is made goes out when it is.

    Nagle's delay is off (asyncio's own default). While the peer does not read, `partner` is not read either.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._wanted = True
        self._fin_sent = False
        self._rst_sent = False
        self.partner: Leg | None = None
        self.fin_seen = False
        self.gone = False

    @property
    def connected(self) -> bool:
        """Whether the connection was made, whatever became of it since."""
        return self._transport is not None

    def send(self, data: bytes) -> None:
        """Send bytes, as soon as possible."""
        if self._transport is None:
            self._early.append(data)
        elif not self._transport.is_closing() and not self._fin_sent:
            self._transport.write(data)

    async def flushed(self) -> None:
        """Wait until the kernel has all that was sent, or the connection is gone."""
        await self._flushed.wait()

    def fin(self) -> None:
        """Send FIN behind what was sent. The connection is closed once the peer has sent its own."""
        if self._fin_sent:
            return
        self._fin_sent = True
        if self._transport is not None:
            self._send_fin(self._transport)

    def close(self) -> None:
        """Close in an orderly way; what the peer sends from now on is answered with RST."""
        self._fin_sent = True
        if self._transport is not None:
            self._transport.close()

    def rst(self) -> None:
        """Send RST now; what the kernel has not sent yet is lost."""
        self._rst_sent = True
        if self._transport is None or self.gone:
            return
        with contextlib.suppress(OSError):
            connection = self._transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
        self._transport.abort()

    def read(self, *, on: bool) -> None:
        """Take what the peer sends, or leave it in the kernel."""
        self._wanted = on
        self._refresh()

    def _refresh(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._wanted and (self.partner is None or self.partner._flushed.is_set()):  # noqa: SLF001 - of this class
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _unblock(self) -> None:
        self._flushed.set()
        if self.partner is not None:
            self.partner._refresh()  # noqa: SLF001 - of this class

    def _send_fin(self, transport: asyncio.Transport) -> None:
        if self.fin_seen:
            transport.close()
        elif not transport.is_closing():
            with contextlib.suppress(OSError):  # the peer has already reset it
                transport.write_eof()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what was waiting for the connection."""
        self._transport = cast("asyncio.Transport", transport)
        if self._rst_sent:
            self.rst()
            return
        self._transport.set_write_buffer_limits(high=0)  # so that `flushed` means what it says
        for data in self._early:
            self._transport.write(data)
        self._early.clear()
        if self._fin_sent:
            self._send_fin(self._transport)

    def data_received(self, data: bytes) -> None:
        """Tell the owner."""
        self._owner.data(self, data)

    def eof_received(self) -> bool:
        """Tell the owner; keep the connection while our own direction is open."""
        self.fin_seen = True
        self._owner.ended(self)
        return not self._fin_sent

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner."""
        self.gone = True
        self._unblock()
        self._owner.lost(self, reset=exc is not None)

    def pause_writing(self) -> None:
        """Stop reading what could not be passed on."""
        self._flushed.clear()
        if self.partner is not None:
            self.partner._refresh()  # noqa: SLF001 - of this class

    def resume_writing(self) -> None:
        """Read on."""
        self._unblock()


async def connect(leg: Leg, port: int) -> bool:
    """Connect `leg` to a loopback port; False if nothing takes the connection."""
    try:
        await asyncio.get_running_loop().create_connection(lambda: leg, "127.0.0.1", port)
    except OSError:
        return False
    return True


class Listener:
    """A loopback port whose connections become legs; it can stop accepting and go on listening.

    asyncio's own server may not be closed while it accepts (CPython 3.12 then leaks the connection), and cannot pause.
    """

    def __init__(self, make: Callable[[], Leg], backlog: int) -> None:
        self._make = make
        self._backlog = backlog
        self._accepting: set[asyncio.Task[object]] = set()
        self._fillers: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=backlog)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def resume(self) -> None:
        """Accept what comes and what has queued."""
        self._drain()
        self._socket.listen(self._backlog)
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    async def pause(self) -> None:
        """Accept no more; the kernel queues one connection and drops the SYNs of the others."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.listen(0)
        await asyncio.gather(*self._accepting)

    async def block(self) -> None:
        """Accept no more, and have the kernel drop every SYN: the queue of connections that nobody accepts is full.

        A queue of length 0 takes one connection on Linux; it is seen to be full when a connection is not made.
        """
        await self.pause()
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

    async def close(self) -> None:
        """Listen no more. The legs live on."""
        self._drain()
        await self.pause()
        self._socket.close()

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            connection.setblocking(False)
            task: asyncio.Task[object] = loop.create_task(loop.connect_accepted_socket(self._make, connection))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)


Listen = Callable[[Callable[[], Leg], int], Listener]  # what makes a listener: from `make` and a backlog
