"""Toxiproxy's toxics on the connections of a port of the network in memory, as 2.12 was measured to do them."""

from collections.abc import Callable

from .network import End, Half, Item, Network, Pass, Port

_US = 1_000_000


class VirtualToxics:
    """What `toxiproxy.ToxicProxy` does for a fault."""

    def __init__(self, network: Network, number: int) -> None:
        self._network = network
        self._number = number
        self._port: Port | None = None  # while it is disabled
        self._starved: dict[Half, None] = {}  # connections whose bytes were withheld
        self._said: dict[Half, int] = {}

    async def add(self, kind: str, *, stream: str = "downstream", **attributes: int) -> None:
        """Add a toxic, on connections that are open and on new ones."""
        makers: dict[str, Callable[..., Pass]] = {
            "latency": self._latency,
            "timeout": self._timeout,
            "reset_peer": self._reset_peer,
            "limit_data": self._limit_data,
            "slicer": self._slicer,
        }
        passing = makers[kind](**attributes)
        port = self._network.ports[self._number]
        if stream == "downstream":
            port.downstream = passing
        else:
            port.upstream = passing

    async def clear(self) -> None:
        """Remove every toxic and listen. Connections whose bytes were withheld are closed."""
        await self.enable()
        port = self._network.ports.get(self._number)
        if port is not None:
            port.downstream = port.upstream = Half.transmit
        for half in self._starved:
            self._end(half, End.FIN)
        self._starved.clear()
        self._said.clear()

    async def disable(self) -> None:
        """Close its connections and its port."""
        self._port = self._network.ports.pop(self._number, None)
        for half in list(self._port.accepted if self._port else ()):
            self._end(half, End.FIN)

    async def enable(self) -> None:
        """Listen again."""
        if self._port is not None:
            self._network.ports.setdefault(self._number, self._port)
            self._port = None

    def _end(self, half: Half, how: End) -> None:
        half.transmit(how)
        half.other.transmit(how)

    def _latency(self, *, latency: int, jitter: int) -> Pass:  # noqa: ARG002 - without jitter: chance is in the network
        return lambda half, item: half.transmit_late(item, latency / 1000)

    def _timeout(self, *, timeout: int) -> Pass:  # noqa: ARG002 - 0 in every fault: never
        def starve(half: Half, item: Item) -> None:
            if isinstance(item, End):
                half.transmit(item)
            else:
                self._starved[half] = None

        return starve

    def _reset_peer(self, *, timeout: int) -> Pass:
        def reset(half: Half, item: Item) -> None:
            if isinstance(item, End):
                half.transmit(item)
            else:
                half.loop.call_later(timeout / 1000, self._end, half, End.RST)

        return reset

    def _limit_data(self, *, bytes: int) -> Pass:  # noqa: A002 - Toxiproxy's word
        def limit(half: Half, item: Item) -> None:
            if isinstance(item, End):
                half.transmit(item)
                return
            room = bytes - self._said.get(half, 0)
            self._said[half] = self._said.get(half, 0) + len(item)
            if room > 0:
                half.transmit(item[:room])
            if len(item) >= room:
                self._end(half, End.FIN)

        return limit

    def _slicer(self, *, average_size: int, size_variation: int, delay: int) -> Pass:  # noqa: ARG002 - equal slices
        def slice_up(half: Half, item: Item) -> None:
            if isinstance(item, End):
                half.transmit(item)
                return
            for number, start in enumerate(range(0, len(item), average_size)):
                half.transmit_late(item[start : start + average_size], number * delay / _US)

        return slice_up
