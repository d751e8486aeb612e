"""A network in memory: ports, and connections that carry bytes, FIN and RST in order, each after its delay.

Of TCP it has what faults are made of. Flow control it has not: whatever is written has left its process.
"""

import asyncio
import errno
import itertools
import random
import socket
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from ..legs import LINGER_ZERO

_FIRST_PORT = 20_000
_DELAYS_S = (0.0001, 0.001)  # of one connection, by chance: what makes schedules differ


class End(Enum):
    """The ends of a direction of a connection."""

    FIN = auto()
    RST = auto()


Item = bytes | End
Pass = Callable[["Half", Item], None]


class Process:
    """What may be stopped: its connections then neither take in nor send out, and its ports still accept."""

    def __init__(self) -> None:
        self.stopped = False
        self.halves: dict[Half, None] = {}

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        self.stopped = False
        for half in list(self.halves):
            half.thaw()


class Port:
    """A port on which something listens. What its side says goes through `downstream`, what it hears, `upstream`."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self.factory = factory
        self.process = Process()
        self.accepts = asyncio.Event()  # cleared, SYNs are dropped; a dropped one is sent again
        self.accepts.set()
        self.accepted: dict[Half, None] = {}
        self.downstream: Pass = Half.transmit
        self.upstream: Pass = Half.transmit


class _Socket:
    """As much of a socket as its user may touch."""

    def __init__(self) -> None:
        self.linger_zero = False

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """Note that closing should send RST."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER):
            self.linger_zero = value == LINGER_ZERO


class Half(asyncio.Transport):
    """One end of a connection, as the transport of the protocol there."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, process: Process, delay_s: float, passing: Callable[[], Pass]
    ) -> None:
        self._socket = _Socket()
        super().__init__({"socket": self._socket})
        self.loop = loop
        self.other: Half
        self.delay_s = delay_s
        self._protocol: Any = None
        self._process = process
        self._passing = passing
        self._on_the_way: deque[Item] = deque()
        self._inbox: deque[Item] = deque()
        self._held: list[Item] = []  # written by a stopped process
        self._reading = True
        self._closing = False
        self._fin_sent = False
        self._lost = False
        process.halves[self] = None

    def begin(self, protocol: Any) -> None:
        """The connection is made."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._deliver()

    # Bytes on their way

    def _send(self, item: Item) -> None:
        if self._process.stopped:
            self._held.append(item)
        else:
            self._passing()(self, item)

    def transmit(self, item: Item) -> None:
        """Put an item on its way to the other end."""
        self.transmit_late(item, 0.0)

    def transmit_late(self, item: Item, more_s: float) -> None:
        """The same, `more_s` seconds late; order is kept."""
        self.other._on_the_way.append(item)  # noqa: SLF001 - of this class
        self.loop.call_at(self.loop.time() + self.delay_s + more_s, self.other._arrive)  # noqa: SLF001 - of this class

    def _arrive(self) -> None:
        if not self._on_the_way:  # an RST has overtaken it
            return
        item = self._on_the_way.popleft()
        if self._closing:
            if not isinstance(item, End) and self._lost:
                self.transmit(End.RST)
            return
        if item is End.RST:
            self._inbox.clear()
        self._inbox.append(item)
        self._deliver()

    def _deliver(self) -> None:
        while self._inbox and not self._closing and not self._process.stopped and self._protocol is not None:
            item = self._inbox[0]
            if item is not End.RST and not self._reading:
                return
            self._inbox.popleft()
            if item is End.RST:
                self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
            elif item is End.FIN:
                if not self._protocol.eof_received():
                    self.close()
            else:
                self._protocol.data_received(item)

    def thaw(self) -> None:
        """The process goes on."""
        held, self._held = self._held, []
        for item in held:
            self._send(item)
        self._deliver()

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._process.halves.pop(self, None)
            self._protocol.connection_lost(error)

    # asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send."""
        if data and not self._closing and not self._fin_sent:
            self._send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        """Send, as one piece."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """It can."""
        return True

    def write_eof(self) -> None:
        """Send FIN."""
        if not self._fin_sent and not self._closing:
            self._fin_sent = True
            self._send(End.FIN)

    def close(self) -> None:
        """Close: FIN, unless the socket says RST or has bytes that nobody has read."""
        if self._closing:
            return
        unread = any(not isinstance(item, End) for item in self._inbox)
        if self._socket.linger_zero or unread:
            self._send(End.RST)
        else:
            self.write_eof()
        self._closing = True
        self._inbox.clear()
        self.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """The same, since nothing waits to be sent."""
        self.close()

    def is_closing(self) -> bool:
        """Whether it is closed."""
        return self._closing

    def pause_reading(self) -> None:
        """Leave in the kernel what comes."""
        self._reading = False

    def resume_reading(self) -> None:
        """Take it again."""
        if not self._reading:
            self._reading = True
            self.loop.call_soon(self._deliver)

    def is_reading(self) -> bool:
        """Whether it is."""
        return self._reading and not self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered."""

    def get_write_buffer_size(self) -> int:
        """Nothing is buffered."""
        return 0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Change it."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol


class Network:
    """Ports, and the connections to them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self._numbers = itertools.count(_FIRST_PORT)
        self._clients = Process()
        self.ports: dict[int, Port] = {}

    def free_port(self) -> int:
        """A port that nobody has had."""
        return next(self._numbers)

    async def connect(self, make: Callable[[], Any], number: int) -> tuple[Half, Any]:
        """Connect to a port. Raises ConnectionRefusedError where nothing listens."""
        delay_s = self._rng.uniform(*_DELAYS_S)
        await asyncio.sleep(2 * delay_s)
        while (port := self.ports.get(number)) is not None and not port.accepts.is_set():
            await port.accepts.wait()
        if port is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ('127.0.0.1', {number})")
        near = Half(self._loop, self._clients, delay_s, lambda: port.upstream)
        far = Half(self._loop, port.process, delay_s, lambda: port.downstream)
        near.other, far.other = far, near
        port.accepted[far] = None
        far.begin(port.factory())
        protocol = make()
        near.begin(protocol)
        return near, protocol
