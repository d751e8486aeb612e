"""What every policy is given and gives back: plain values, no clock and no socket.

A policy chooses among the shards that it was last told serve. Time is an argument, in seconds of any clock, and
chance is a `Random` from outside, so that a simulation in virtual time runs the same code as the router.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

# Up to so many shards are all compared; of more, a block of that many. The least of a block is hardly worse than the
# least of all, and the cost of a choice stops growing with the fleet.
COMPARED = 64


class Member(Protocol):
    """What a policy may know of a shard, which is hashable."""

    @property
    def url(self) -> str:
        """What tells it from the others."""

    @property
    def in_flight(self) -> int:
        """Requests that it is working on for this router."""


S = TypeVar("S", bound=Member)


@dataclass(frozen=True, slots=True)
class Turn:
    """What a request says of the conversation that it belongs to."""

    keys: tuple[bytes, ...] = ()  # names by which its session may be known, the surest first; that one is remembered
    group: bytes = b""  # what all rollouts of one task share: their first turn
    tokens: int = 0  # of the prompt, estimated
    light: bool = False  # leaves nothing in the engine's cache


@dataclass(slots=True)
class Choice(Generic[S]):
    """Where a request goes; handed back once, when its attempt has ended. `books` is the policy's own."""

    shard: S
    books: Any = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What one look at an engine's `/metrics` says of its KV cache."""

    usage: float  # share in use, 0 to 1
    waiting: int = 0  # requests in its queue
    capacity: int | None = None  # tokens; None: it does not say
    queries: float = 0.0  # prompt tokens looked up in the prefix cache since the engine's start
    hits: float = 0.0  # and found


@dataclass(frozen=True, slots=True)
class Pressure:
    """How full the fleet is. None: not known."""

    full: bool = False
    usage: float | None = None  # mean share of KV cache in use
    hit_rate: float | None = None  # of the prefix caches, over the last minute


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """What can be set. Times in seconds."""

    session_entries: int = 262_144
    session_ttl_s: float = 7200.0
    kv_capacity_tokens: int | None = None  # of each engine, where its own word is not to be trusted


class Policy(Protocol[S]):
    """Chooses a shard for each attempt."""

    reads_turns: bool  # whether it wants to know a request's conversation
    reads_metrics: bool  # whether it wants to be told of engines' metrics

    def knows(self, key: bytes, now: float) -> bool:
        """Whether a session of this name needs no more than its name."""

    def set_serving(self, serving: Sequence[S], now: float, resting: Sequence[S] = ()) -> None:
        """Who may serve from now on; `resting` are expected back with all that they hold, others return empty."""

    def choose(self, turn: Turn, now: float, tried: Collection[S] = ()) -> Choice[S] | None:
        """A shard that is none of `tried`, counted as sent to at once; None if there is none."""

    def ended(self, choice: Choice[S], now: float, tokens: int | None = None, key: bytes = b"") -> None:
        """An attempt is over. `tokens`: the context's after the answer, None if it has failed or does not say.

        `key` names the session from here on, where the request could not.
        """

    def scraped(self, shard: S, sample: Sample, now: float) -> None:
        """An engine's metrics have been read."""

    def pressure(self) -> Pressure:
        """How full the fleet is."""


class Stateless(Generic[S]):
    """A policy that keeps no books: it decides by the serving shards and what is in flight."""

    reads_turns = False
    reads_metrics = False

    def __init__(self) -> None:
        self._serving: Sequence[S] = ()

    def knows(self, key: bytes, now: float) -> bool:
        """A name is all that is ever needed."""
        del key, now
        return True

    def set_serving(self, serving: Sequence[S], now: float, resting: Sequence[S] = ()) -> None:
        """Remember who serves."""
        del now, resting
        self._serving = serving

    def choose(self, turn: Turn, now: float, tried: Collection[S] = ()) -> Choice[S] | None:
        """One of those that serve and are not `tried`."""
        del now
        serving = [shard for shard in self._serving if shard not in tried] if tried else self._serving
        return Choice(self._pick(serving, turn)) if serving else None

    def _pick(self, serving: Sequence[S], turn: Turn) -> S:
        raise NotImplementedError

    def ended(self, choice: Choice[S], now: float, tokens: int | None = None, key: bytes = b"") -> None:
        """Nothing to learn."""

    def scraped(self, shard: S, sample: Sample, now: float) -> None:
        """Nothing to learn."""

    def pressure(self) -> Pressure:
        """Not known."""
        return Pressure()


T = TypeVar("T")


def some_of(everything: Sequence[T], start: int, most: int = COMPARED) -> Sequence[T]:
    """The first `most` of them from `start` on, and round."""
    start %= len(everything)
    block = everything[start : start + most]
    missing = min(most, len(everything)) - len(block)
    return [*block, *everything[:missing]] if missing else block
