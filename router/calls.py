"""The request that passes between the listener and the dispatcher, and what becomes of it. Plain values."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from .failures import Outcome
from .shard import Shard
from .two_leg import Legs


class ClientStream(Protocol):
    """A streamed answer under way: the status line has gone out, so it can only be continued or ended."""

    async def write(self, chunk: bytes) -> None:
        """Pass a piece on. Raises ClientGoneError."""

    async def end(self) -> None:
        """End it properly. Raises ClientGoneError."""


OpenStream: TypeAlias = Callable[[int, tuple[tuple[str, str], ...]], Awaitable[ClientStream]]


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a prefill leg has left behind, and no decode server has seen yet."""

    params: bytes
    id: bytes  # of both legs
    at: float  # time.monotonic() when the prefill leg ended


@dataclass(slots=True, eq=False)
class Call:
    """One request of a client's, and how far the router has come with it."""

    method: bytes
    target: bytes  # path and query as they came
    lines: bytes  # the header lines that are forwarded
    body: bytes
    id: str
    started: float  # time.monotonic() when the head had come
    deadline: float
    open_stream: OpenStream
    session: bytes = b""  # of the client's own naming
    tried: list[Shard] = field(default_factory=list)
    delivered: int = 0  # attempts that count against max_attempts
    last: Outcome = Outcome.NO_SHARD
    detail: str = "no shard may serve"
    upstream_status: int | None = None
    legs: Legs | None = None  # how it is served, once that is known; only where there are prefill servers
    prefilled_by: list[Shard] = field(default_factory=list)  # prefill shards that have been tried
    transfer: "Transfer | None" = None

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition(b"?")[0].decode("latin-1")
