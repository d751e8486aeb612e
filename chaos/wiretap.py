"""A transparent relay between the clients and the router under test that records every exchange.

The evidence is taken here, so that it depends neither on the client nor on the router. Bytes go on before they are
looked at, and endings go on as what they are: FIN as FIN, RST as RST.
"""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from .exchanges import Exchanges
from .history import Attempt, Ending
from .legs import Leg, Listen, Listener, connect
from .waiting import wait_until

_BACKLOG = 4096
_CLOSE_WITHIN_S = 5.0
_ASK_WITHIN_S = 1.0


class Wiretap:
    """Listens on a loopback port of its own and relays to `upstream_port`, one connection for each client connection.

    `on_attempt` gets one `Attempt` when an exchange ends, and at the latest when the tap closes.
    """

    port: int

    def __init__(self, upstream_port: int, on_attempt: Callable[[Attempt], None], listen: Listen = Listener) -> None:
        self._listen = listen
        self._upstream_port = upstream_port
        self._on_attempt = on_attempt
        self._taps: dict[_Tap, None] = {}

    @property
    def url(self) -> str:
        """Where the clients go, without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"

    def pending(self) -> int:
        """How many exchanges have no end yet."""
        return sum(len(tap.exchanges) for tap in self._taps)

    async def __aenter__(self) -> Self:
        self._listener = self._listen(self._accept, _BACKLOG)
        self.port = self._listener.port
        self._listener.resume()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._listener.close()
        for tap in tuple(self._taps):
            tap.stop()
        if not await wait_until(lambda: not self._taps, _CLOSE_WITHIN_S):
            raise TimeoutError(f"{len(self._taps)} connections do not end, {_CLOSE_WITHIN_S} s after RST")

    def _accept(self) -> Leg:
        tap = _Tap(self._upstream_port, self._on_attempt, self._forget)
        self._taps[tap] = None
        return tap.client

    def _forget(self, tap: "_Tap") -> None:
        self._taps.pop(tap, None)


class _Tap:
    """One client connection and its connection to the router."""

    def __init__(
        self, upstream_port: int, on_attempt: Callable[[Attempt], None], forget: Callable[["_Tap"], None]
    ) -> None:
        self.exchanges = Exchanges(on_attempt)
        self.client = Leg(self)
        self._router = Leg(self)
        self.client.partner, self._router.partner = self._router, self.client
        self._forget = forget
        self._farewell: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._connecting = asyncio.ensure_future(self._connect(upstream_port))

    async def _connect(self, port: int) -> None:
        if await connect(self._router, port):
            self.client.read(on=True)
        else:
            self._part(self._refuse, now=self.exchanges.asked)

    def data(self, leg: Leg, data: bytes) -> None:
        """Pass on first, then take note."""
        if leg is self._router:
            self.client.send(data)
            self.exchanges.response_bytes(data, time.monotonic())
            return
        if self._farewell is None:
            self._router.send(data)
            if not self._router.connected:
                self.client.read(on=False)  # so that nothing piles up here
        self.exchanges.request_bytes(data, time.monotonic())
        if self._farewell is not None and self.exchanges.asked:
            self._farewell()

    def ended(self, leg: Leg) -> None:
        """Pass a FIN on."""
        if leg is self.client:
            self.exchanges.all_ended(Ending.CLIENT_LEFT, time.monotonic())
            self._router.fin()
        else:
            self._part(self._close, now=self.exchanges.begun)

    def lost(self, leg: Leg, *, reset: bool) -> None:
        """Pass an RST on."""
        if leg is self.client:
            self.exchanges.all_ended(Ending.CLIENT_LEFT, time.monotonic())
            self._cancel()
            if reset:
                self._router.rst()
        elif reset:
            self._part(self._reset, now=self.exchanges.begun)
        if self.client.gone and (self._router.gone or not self._router.connected):
            self._forget(self)

    def stop(self) -> None:
        """End both connections; what is open stays pending."""
        self.exchanges.all_ended(Ending.PENDING, None)
        self._cancel()
        self._router.rst()
        self.client.rst()

    def _cancel(self) -> None:
        self._connecting.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _part(self, farewell: Callable[[], None], *, now: bool) -> None:
        """Pass the end of the router's side on, now or when the client has asked.

        A router that ends a connection before anything was asked on it would leave an attempt without the name of
        its call, so the request is awaited for a moment.
        """
        if now:
            farewell()
            return
        self._farewell = farewell
        self.client.read(on=True)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_ASK_WITHIN_S, farewell)

    def _refuse(self) -> None:
        self.exchanges.all_ended(Ending.REFUSED, time.monotonic())
        self.client.rst()

    def _close(self) -> None:
        self.exchanges.router_left(time.monotonic(), reset=False)
        self.client.fin()

    def _reset(self) -> None:
        self.exchanges.router_left(time.monotonic(), reset=True)
        self.client.rst()
