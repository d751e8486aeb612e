"""The client-facing side as a whole: which connections there are, what becomes of a request, and how it all ends."""

import asyncio
import socket
from itertools import count

from .answers import REASON_HEADER, Answer
from .calls import Call, OpenStream
from .client_connection import ClientConnection
from .dispatch import Dispatcher
from .intake import ListenerLimits, turned_down
from .metrics import Tally
from .surface import path_of
from .wire import Message

BACKLOG = 4096
# A connection that looks idle may have a request in its socket's buffer; this is the time to read it.
LAST_CALL_S = 0.05


class Listener:
    """Accepts connections on one socket and serves one dispatcher."""

    def __init__(self, dispatcher: Dispatcher, limits: ListenerLimits, tally: Tally) -> None:
        self.limits = limits
        self.draining = False
        self._dispatcher = dispatcher
        self._tally = tally
        self._numbers = count(1)
        self._connections: set[ClientConnection] = set()
        self._empty = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Accept connections on a bound socket, which is the listener's from here on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ClientConnection(self), sock=listener, backlog=BACKLOG)

    async def stop(self, timeout_s: float) -> bool:
        """Accept no more, let every request in flight get its answer, close. False if some were cut off."""
        self.draining = True
        if self._server is not None:
            self._server.close()
        await asyncio.sleep(min(LAST_CALL_S, timeout_s))
        for connection in list(self._connections):
            if connection.idle:
                connection.close()
        clean = await self._emptied(timeout_s)
        for connection in list(self._connections):
            connection.abort()
        await self._emptied(1.0)
        return clean

    async def _emptied(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while self._connections:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            return False
        return True

    # Called by connections

    def opened(self, connection: ClientConnection) -> None:
        """A connection exists."""
        self._connections.add(connection)

    def lost(self, connection: ClientConnection) -> None:
        """It exists no more."""
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def admit(self, message: Message) -> Answer | None:
        """The answer to a request that is not taken."""
        method, path = message.method.decode("latin-1"), path_of(message.target)
        return turned_down(method, path, message.head, self._tally.in_flight, self.limits)

    async def serve(self, message: Message, open_stream: OpenStream) -> Answer | None:
        """The answer, or None when it was streamed."""
        self._tally.in_flight += 1
        try:
            return await self._dispatcher.dispatch(self.call(message, open_stream))
        finally:
            self._tally.in_flight -= 1

    def call(self, message: Message, open_stream: OpenStream) -> Call:
        """The call for a request that is whole."""
        head = message.head
        return Call(
            method=message.method,
            target=message.target,
            lines=head.lines(),
            body=message.body(),
            id=head.request_id.decode("latin-1") or f"{next(self._numbers):x}",
            started=message.started,
            deadline=message.started + self.limits.deadline_s,
            open_stream=open_stream,
            session=head.session,
        )

    def refused(self, answer: Answer) -> None:
        """Count a request that was turned down."""
        self._tally.answered(answer.status, dict(answer.headers)[REASON_HEADER], 0.0)
