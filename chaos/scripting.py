"""What a scripted port may do to a connection: the hooks of a `Script` and the verbs of a `Connection`.

What a particular script does with them is in `chaos/faults/`.
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar

from .asking import ask, dial
from .http1 import (
    Bad,
    Mark,
    Request,
    RequestFollower,
    RequestReader,
    Response,
    ResponseFollower,
    ResponseReader,
)
from .legs import Leg, connect


class Script:
    """What a shard's port does. Only POSTs reach `on_request`; everything else is relayed, so `/health` stays well.

    As it stands, it relays.
    """

    listens: ClassVar[bool] = True  # False: the port drops SYNs

    def on_play(self, connection: "Connection") -> None:
        """The script begins, and this connection was there before it."""

    def on_accept(self, connection: "Connection") -> None:
        """A connection was accepted, and nothing was read from it yet."""

    async def on_request(self, connection: "Connection", request: Request) -> None:
        """A request has come whole. Cancelled when the peer leaves or another script is played."""
        await connection.send((await connection.fetch(request)).wire())

    async def on_idle(self, connection: "Connection") -> None:
        """`on_request` has answered. Cancelled when the next request begins."""


RELAY = Script()


class _Mode(Enum):
    IDLE = auto()  # between two requests
    RELAYING = auto()  # one exchange passes through
    COLLECTING = auto()  # a request for the script is coming
    ANSWERING = auto()  # the script answers it
    BROKEN = auto()  # whatever still comes is dropped


class Connection:
    """One connection of the router, and the one to the shard behind it, which is made when it is first needed."""

    def __init__(self, upstream_port: int, script: Script, forget: Callable[["Connection"], None]) -> None:
        self.peer = Leg(self)
        self.requests = 0  # begun on this connection, the present one included
        self._upstream_port = upstream_port
        self._upstream: Leg | None = None
        self._script = script
        self._forget = forget
        self._mode = _Mode.IDLE
        self._ahead: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._connecting: asyncio.Task[None] | None = None
        script.on_accept(self)

    @property
    def idle(self) -> bool:
        """Whether no request is being sent, answered or relayed."""
        return self._mode is _Mode.IDLE

    @property
    def shard_url(self) -> str:
        """Where the shard is, without a trailing slash."""
        return f"http://127.0.0.1:{self._upstream_port}"

    async def send(self, data: bytes) -> None:
        """Send bytes and wait until the kernel has them."""
        self.peer.send(data)
        await self.peer.flushed()

    def fin(self) -> None:
        """Send FIN, and no more. The connection is kept open until the peer closes, so that it never sees RST."""
        self._break()
        self.peer.fin()

    def rst(self) -> None:
        """Send RST."""
        self._break()
        self.peer.rst()

    def freeze(self) -> None:
        """Send nothing more, whatever is asked or comes from the shard."""
        self._mode = _Mode.BROKEN

    async def hold(self) -> None:
        """Be silent until another script is played or the peer leaves."""
        await asyncio.get_running_loop().create_future()

    async def fetch(self, request: Request) -> Response:
        """The shard's whole answer. Its connection is closed at once when the script is cancelled."""
        answer = ResponseReader()
        async with dial(self.shard_url) as streams:
            await ask(streams, request.wire, answer)
        if not answer.whole:
            raise ConnectionError(f"the shard on port {self._upstream_port} gave no whole answer")
        return answer.response()

    def switch(self, script: Script) -> None:
        """Another script is played. A connection that the old one has broken, or is busy with, is closed."""
        self._script = script
        touched = self._mode in {_Mode.ANSWERING, _Mode.BROKEN}
        self._cancel()
        if touched:
            self._break()
            self.peer.close()
        else:
            script.on_play(self)

    def stop(self) -> None:
        """End both connections."""
        self._cancel()
        self._break()
        self.peer.rst()

    def data(self, leg: Leg, data: bytes) -> None:
        """Take bytes of the router or of the shard."""
        if leg is not self.peer:
            self._answered(leg, data)
            return
        match self._mode:
            case _Mode.IDLE:
                self._begin(data)
            case _Mode.RELAYING:
                self._relay(data)
            case _Mode.COLLECTING:
                self._collect(data)
            case _Mode.ANSWERING:
                self._ahead.append(data)
            case _Mode.BROKEN:
                pass

    def ended(self, leg: Leg) -> None:
        """Pass a FIN on while relaying; a shard's FIN does not show through a script."""
        relays = self._mode in {_Mode.IDLE, _Mode.RELAYING}
        if leg is self.peer:
            self._cancel()
            if relays and self._upstream is not None:
                self._upstream.fin()
            else:
                self.fin()
        elif relays and leg is self._upstream:
            self.fin()

    def lost(self, leg: Leg, *, reset: bool) -> None:
        """Pass an RST on while relaying. When the router has left, the shard's connection goes too."""
        if leg is self.peer:
            self._cancel()
            self._break()
        elif reset and leg is self._upstream and self._mode in {_Mode.IDLE, _Mode.RELAYING}:
            self.rst()
        if self.peer.gone and (self._upstream is None or self._upstream.gone or not self._upstream.connected):
            self._forget(self)

    def _begin(self, data: bytes) -> None:
        self._cancel()
        self.requests += 1
        if self._script is RELAY or not b"POST".startswith(data[:4]):
            self._mode = _Mode.RELAYING
            self._asking: RequestFollower | None = RequestFollower()
            self._answering: ResponseFollower | None = ResponseFollower()
            self._relay(data)
        else:
            self._mode = _Mode.COLLECTING
            self._request = RequestReader()
            self._collect(data)

    def _relay(self, data: bytes) -> None:
        if self._upstream is None or self._upstream.gone or self._upstream.fin_seen:
            if self._upstream is not None:
                self._upstream.rst()  # the shard has closed it, unseen behind a script
            self._upstream = Leg(self)
            self._upstream.partner, self.peer.partner = self.peer, self._upstream
            self._connecting = asyncio.ensure_future(self._connect(self._upstream))
        self._upstream.send(data)
        if self._asking is not None and Mark.END in self._asking.feed(data):
            self._asking = None
            self._relayed()

    def _answered(self, leg: Leg, data: bytes) -> None:
        if leg is not self._upstream or self._mode not in {_Mode.IDLE, _Mode.RELAYING}:
            return
        self.peer.send(data)
        if self._mode is _Mode.RELAYING and self._answering is not None and Mark.END in self._answering.feed(data):
            self._answering = None
            self._relayed()

    def _relayed(self) -> None:
        if self._asking is None and self._answering is None:
            self._mode = _Mode.IDLE

    async def _connect(self, upstream: Leg) -> None:
        if not await connect(upstream, self._upstream_port):
            self.rst()

    def _collect(self, data: bytes) -> None:
        request = self._request.feed(data)
        if isinstance(request, Bad):
            self.rst()
        elif request is not None:
            self._mode = _Mode.ANSWERING
            self._task = asyncio.ensure_future(self._answer(self._script, request))

    async def _answer(self, script: Script, request: Request) -> None:
        try:
            await script.on_request(self, request)
        except OSError:
            self.rst()
        if self._mode is not _Mode.ANSWERING:
            return
        self._mode = _Mode.IDLE
        if self._ahead:
            asyncio.get_running_loop().call_soon(self.data, self.peer, b"".join(self._ahead))
            self._ahead.clear()
        else:
            await script.on_idle(self)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _break(self) -> None:
        self._mode = _Mode.BROKEN
        if self._connecting is not None:
            self._connecting.cancel()
        if self._upstream is not None:
            self._upstream.rst()
