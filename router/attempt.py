"""One attempt on one shard: what is sent where, and how it ended. Plain values."""

from dataclasses import dataclass, field

from .answers import Answer
from .failures import Blame, Outcome, Reached
from .fleet import Fleet
from .shard import Shard


@dataclass(frozen=True, slots=True)
class Leg:
    """What is sent to one shard for a call. `prefill`: the answer is for the router, not for the client."""

    fleet: Fleet
    shard: Shard
    lines: bytes
    body: bytes = field(repr=False)
    prefill: bool = False
    paired: bool = False  # a decode leg that fetches what a prefill leg has left


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that has ended. `answer` is there when it may go to the client as it is."""

    outcome: Outcome
    detail: str
    reached: Reached
    reused: bool
    status: int | None = None
    answer: Answer | None = None


# What the end of a decode leg says about its shard where the other half of a pair may be to blame just as well: the
# prefill server is gone, or the way to it. All other outcomes speak for themselves.
PAIRED_BLAME = {
    Outcome.ERRED: Blame.NONE,
    Outcome.CUT_STREAM: Blame.NONE,
    Outcome.HUNG: Blame.NONE,
}
