"""The vocabulary of a scripted server: what it does with each request, as plain values.

A `Case` says where the client is sent (`Address`), how much of a request is read before the
server acts (`Reads`), and the steps for each request in turn. No I/O here: `scripted_server`
plays a case.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Redirect:
    """Answer with `status` and a Location; `{dead}` and `{other}` in it become ports of this machine."""

    status: int
    location: str


class End(Enum):
    """How the server leaves the connection."""

    FIN = auto()  # close
    RST = auto()  # reset
    STALL = auto()  # keep it open and never say another word
    LINGER = auto()  # stop writing, read what still comes, then close


Step = Send | Pause | Redirect | End
Steps = tuple[Step, ...]


class Reads(Enum):
    """How much of a request the server reads before it acts; it counts the request at that moment."""

    NOTHING = auto()
    HEAD = auto()
    WHOLE = auto()


class Address(Enum):
    """What stands at the URL that the client is given."""

    SCRIPTED = auto()
    REFUSED = auto()  # nobody listens, until the server heals
    UNACCEPTED = auto()  # the kernel accepts, nobody answers
    BACKLOG_FULL = auto()  # the kernel drops the SYN
    UNRESOLVABLE = auto()  # the name does not exist
    TLS_TO_PLAIN = auto()  # https:// to a port that speaks http
    PORT_TOO_HIGH = auto()  # not a URL that can be dialled
    NO_SCHEME = auto()  # not a URL with a scheme


@dataclass(frozen=True, slots=True)
class Case:
    """One thing a server can do to a client.

    `rounds[n]` are the steps for request n; after the last round the last one repeats, or all
    of them with `cycle`. `warm_gap_s` (seconds, or None) makes one call first and leaves the
    connection idle that long, so that the judged call finds it pooled. `body_bytes` is how
    much text the judged request carries. `cap` is the number of requests that counts as no end. With
    `spares_get` every GET gets its 200, as from a server whose `/health` outlives the rest of it.
    """

    rounds: tuple[Steps, ...] = ((),)
    cycle: bool = False
    reads: Reads = Reads.WHOLE
    address: Address = Address.SCRIPTED
    warm_gap_s: float | None = None
    body_bytes: int = 0
    cap: int = 20
    spares_get: bool = False

    def steps(self, request: int) -> Steps:
        """Steps for request number `request`, counted from 0."""
        index = request % len(self.rounds) if self.cycle else min(request, len(self.rounds) - 1)
        return self.rounds[index]


def always(*steps: Step | bytes, reads: Reads = Reads.WHOLE, body_bytes: int = 0, cap: int = 20) -> Case:
    """The same for each request; bytes stand for `Send`."""
    return Case((_steps(steps),), reads=reads, body_bytes=body_bytes, cap=cap)


def in_turn(*rounds: Sequence[Step | bytes], cap: int = 20) -> Case:
    """One round a request, the last one for all that follow."""
    return Case(tuple(_steps(r) for r in rounds), cap=cap)


def alternating(*rounds: Sequence[Step | bytes]) -> Case:
    """The rounds over and over."""
    return Case(tuple(_steps(r) for r in rounds), cycle=True)


def pooled(*rounds: Sequence[Step | bytes], gap_s: float) -> Case:
    """A first call that works and is not judged, `gap_s` seconds of idling, then the judged call."""
    return Case(tuple(_steps(r) for r in rounds), warm_gap_s=gap_s)


def nobody(address: Address) -> Case:
    """No server of ours answers: all that matters is what stands at the address."""
    return Case(address=address)


def _steps(steps: Sequence[Step | bytes]) -> Steps:
    return tuple(Send(s) if isinstance(s, bytes) else s for s in steps)
