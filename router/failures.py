"""What can become of an attempt or of a request, and what follows from it: the one table.

Nothing else in the router decides whether a request is tried again, what kind of answer it gets, or whether a shard
is blamed. Which number an answer has is in `answers`; it is configuration, so it is not part of the rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, auto


class Outcome(IntEnum):
    """The end of one attempt on one shard, or of a request that reached none.

    An IntEnum, since it is a key on the path of every request, and a plain Enum hashes in Python.
    """

    SERVED = auto()  # a 2xx, whole and usable
    REJECTED = auto()  # a deliberate 4xx of the engine's own
    UNREACHABLE = auto()  # refused, connect timeout, name not found: no shard can have seen the request
    STALE_CONNECTION = auto()  # a pooled connection that the server had closed, before any byte of an answer
    BROKE = auto()  # connection lost after delivery: the shard's work is gone
    INVALID = auto()  # bad framing, or a 2xx that Gym cannot read
    HUNG = auto()  # delivered, then silence or a trickle until the deadline
    WEDGED = auto()  # its engine was seen to stand still: taken away from it before the deadline
    OUT_OF_TIME = auto()  # the same, but the shard had only the rest of a budget that others had used up
    BUSY = auto()  # 429 or 503: alive, and saying so
    ERRED = auto()  # any other 5xx
    REDIRECTED = auto()  # a 3xx, which Gym would follow to a backend
    ABORTED = auto()  # a 200 whose generation was cut short by a shutdown or a pause
    CUT_STREAM = auto()  # a stream that failed after its first event had gone to the client
    OVERSIZED = auto()  # an answer above the router's memory limit
    EXHAUSTED = auto()  # the router itself is out of files, ports or places
    NO_SHARD = auto()  # nothing may serve
    POISON = auto()  # the same request broke several shards
    CLIENT_GONE = auto()  # nobody is listening any more
    BAD_REQUEST = auto()  # outside Gym's surface, malformed, or over a limit


class Reply(Enum):
    """The kind of answer the client gets when an outcome is final."""

    UPSTREAM = auto()  # the backend's own, byte for byte
    TRY_AGAIN = auto()  # 500: another shard may do it
    NO_SHARD = auto()  # 409: none can
    GIVE_UP = auto()  # a 4xx that Gym does not send again
    EVENT = auto()  # the status has gone out already: an error event inside the stream
    NOTHING = auto()  # no one to answer


class Retry(Enum):
    """Where the same request may go next, inside the same budget."""

    NO = auto()
    ELSEWHERE = auto()  # another shard, as one of `max_attempts`
    FREE = auto()  # another shard, and the attempt does not count: it was never delivered
    SAME_SHARD = auto()  # once, on a fresh connection


class Blame(Enum):
    """What the outcome says about the shard's health."""

    NONE = auto()
    STRIKE = auto()
    CLEAR = auto()  # a success: forgives the strikes that came before it was sent


class Reached(IntEnum):
    """How far an attempt got; each step includes the ones before it."""

    NONE = 0
    CONNECTED = 1
    WRITTEN = 2
    HEAD = 3
    BODY = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row of the table."""

    reply: Reply
    retry: Retry
    blame: Blame
    reason: str  # the code in `X-Router-Reason` and in the error body


VERDICTS: Mapping[Outcome, Verdict] = {
    Outcome.SERVED: Verdict(Reply.UPSTREAM, Retry.NO, Blame.CLEAR, "served"),
    Outcome.REJECTED: Verdict(Reply.UPSTREAM, Retry.NO, Blame.NONE, "rejected"),
    Outcome.UNREACHABLE: Verdict(Reply.TRY_AGAIN, Retry.FREE, Blame.STRIKE, "unreachable"),
    Outcome.STALE_CONNECTION: Verdict(Reply.TRY_AGAIN, Retry.SAME_SHARD, Blame.NONE, "stale_connection"),
    Outcome.BROKE: Verdict(Reply.TRY_AGAIN, Retry.ELSEWHERE, Blame.STRIKE, "connection_lost"),
    Outcome.INVALID: Verdict(Reply.TRY_AGAIN, Retry.ELSEWHERE, Blame.STRIKE, "invalid_answer"),
    Outcome.HUNG: Verdict(Reply.TRY_AGAIN, Retry.NO, Blame.STRIKE, "deadline"),
    Outcome.WEDGED: Verdict(Reply.TRY_AGAIN, Retry.ELSEWHERE, Blame.STRIKE, "wedged"),
    Outcome.OUT_OF_TIME: Verdict(Reply.TRY_AGAIN, Retry.NO, Blame.NONE, "out_of_time"),
    Outcome.BUSY: Verdict(Reply.TRY_AGAIN, Retry.ELSEWHERE, Blame.NONE, "busy"),
    Outcome.ERRED: Verdict(Reply.TRY_AGAIN, Retry.ELSEWHERE, Blame.STRIKE, "upstream_error"),
    Outcome.REDIRECTED: Verdict(Reply.TRY_AGAIN, Retry.ELSEWHERE, Blame.STRIKE, "redirect"),
    Outcome.ABORTED: Verdict(Reply.TRY_AGAIN, Retry.ELSEWHERE, Blame.NONE, "aborted"),
    Outcome.CUT_STREAM: Verdict(Reply.EVENT, Retry.NO, Blame.STRIKE, "stream_cut"),
    Outcome.OVERSIZED: Verdict(Reply.GIVE_UP, Retry.NO, Blame.NONE, "answer_too_large"),
    Outcome.EXHAUSTED: Verdict(Reply.TRY_AGAIN, Retry.NO, Blame.NONE, "router_exhausted"),
    Outcome.NO_SHARD: Verdict(Reply.NO_SHARD, Retry.NO, Blame.NONE, "no_shard"),
    Outcome.POISON: Verdict(Reply.GIVE_UP, Retry.NO, Blame.NONE, "poison"),
    Outcome.CLIENT_GONE: Verdict(Reply.NOTHING, Retry.NO, Blame.NONE, "client_gone"),
    Outcome.BAD_REQUEST: Verdict(Reply.GIVE_UP, Retry.NO, Blame.NONE, "bad_request"),
}


TURNED_DOWN = frozenset({Outcome.BUSY, Outcome.ABORTED})  # no failure of a shard, and no work for it now


class AttemptError(Exception):
    """An attempt ended without an answer that may be passed on. The seam in `transport` raises nothing else."""

    def __init__(self, outcome: Outcome, detail: str, *, reached: Reached = Reached.NONE, reused: bool = False) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.reached = reached
        self.reused = reused


class ClientGoneError(Exception):
    """The client closed its connection, or stopped reading, while the router was writing to it."""


def fair(outcome: Outcome, *, had_s: float, budget_s: float, paused: bool) -> Outcome:
    """`outcome`, unless it holds a deadline against a shard that could not keep it.

    One that was given less than half of the request's budget could not, nor one that was `paused` in between.
    """
    excused = paused or had_s < budget_s / 2
    return Outcome.OUT_OF_TIME if outcome is Outcome.HUNG and excused else outcome


def may_go_on(outcome: Outcome, *, delivered: int, max_attempts: int, remaining_s: float) -> bool:
    """Whether another shard may be tried after `outcome`, `delivered` being the attempts that count so far."""
    if remaining_s <= 0:
        return False
    match VERDICTS[outcome].retry:
        case Retry.FREE:
            return True
        case Retry.ELSEWHERE:
            return delivered < max_attempts
        case _:
            return False
