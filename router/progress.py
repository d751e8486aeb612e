"""Is an engine at work, or wedged? Judged by successive looks at its `/metrics`. No clock, no socket, no await.

A stopped or hung engine leaves an API server that answers everything but generations, its metrics included, which hold
their last values. So an engine that has requests of ours and of which no number moves stands still. That is all that
can be told of it from outside: one that is paused, or in one very long step, looks the same. What it can be told
apart by is whether the engine itself answers anything, which is asked once it is doubtful.
"""

import re
from dataclasses import dataclass, replace
from enum import Enum, auto

# What moves while an engine works. In a long chunked prefill it is the cache usage alone: tokens are counted when the
# first of an answer comes out.
MOVING = (
    rb"generation_tokens_total|iteration_tokens_total_count|prompt_tokens_total|prefix_cache_queries_total"
    rb"|external_prefix_cache_queries_total|kv_cache_usage_perc|num_requests_running|num_requests_waiting"
)
# Both begin with what few lines do, so that the search is quick: a third of a millisecond for 100 KiB.
_MOVING_LINE = re.compile(rb"\nvllm:(?:%b)[{ ][^\n]*" % MOVING)
_RESTING_LINE = re.compile(
    rb'\nvllm:(?:engine_sleep_state\{[^}]*sleep_state="awake"[^}]*\} 0(?:\.0)?(?=\n|$)'
    rb"|rl_weight_update_operations_in_flight(?:\{[^}]*\})? [0-9.]*[1-9])"
)
DOUBTFUL_SHARE = 1 / 2  # of the time after which it is wedged


class Sight(Enum):
    """What one look at an engine showed."""

    NUMBERS = auto()  # its numbers, as `mark`
    RESTING = auto()  # it says that it sleeps, or that its weights are being updated
    SILENCE = auto()  # no answer in time, or nobody listens: a server that has been told to stop may wait for ever
    NOTHING = auto()  # an answer without its numbers: there are none, or they are switched off


@dataclass(frozen=True, slots=True)
class Look:
    """One look. Equal marks mean that nothing has moved in between."""

    sight: Sight
    mark: bytes = b""


def read_metrics(status: int, body: bytes) -> Look:
    """What an answer to GET /metrics shows."""
    body = b"\n" + body
    lines = _MOVING_LINE.findall(body) if status == 200 else []  # noqa: PLR2004
    if not lines:
        return Look(Sight.NOTHING)
    if _RESTING_LINE.search(body):
        return Look(Sight.RESTING)
    return Look(Sight.NUMBERS, b"".join(lines))


@dataclass(frozen=True, slots=True)
class Stillness:
    """For how long an engine has stood still, as far as looks at it can tell."""

    at: float = 0.0  # of the last look, seconds on the caller's clock
    delays: int = 0  # how often the looker itself had been held up by then
    mark: bytes = b""  # the last numbers; empty before there were any
    still_s: float = 0.0
    asked: bool = False  # whether it has been asked meanwhile, in vain

    def broken(self, at: float, delays: int) -> "Stillness":
        """It worked, or need not."""
        return replace(self, at=at, delays=delays, still_s=0.0, asked=False)

    def after(self, look: Look, *, at: float, delays: int, heard_at: float) -> "Stillness":
        """With one more look, `heard_at` being when the shard last sent a byte of an answer.

        Silence counts only on a shard that has shown numbers before, and has sent nothing since the last look. An
        interval in which the looker was held up counts for nothing.
        """
        mark = self.mark if look.sight is Sight.SILENCE else look.mark
        match look.sight:
            case Sight.NUMBERS:
                stood_still = mark == self.mark
            case Sight.SILENCE:
                stood_still = bool(mark) and heard_at < self.at
            case _:
                stood_still = False
        if not stood_still:
            return Stillness(at, delays, mark)
        counted = at - self.at if delays == self.delays else 0.0
        return replace(self, at=at, delays=delays, still_s=self.still_s + counted)


class Judgement(Enum):
    """What follows from the stillness of an engine that has requests."""

    FINE = auto()
    DOUBTFUL = auto()  # the engine itself has to be asked
    WEDGED = auto()


def judge_stillness(still: Stillness, stall_after_s: float) -> Judgement:
    """The judgement of an engine that has requests. None is called wedged that has not been asked."""
    if still.asked:
        return Judgement.WEDGED if still.still_s >= stall_after_s else Judgement.FINE
    return Judgement.DOUBTFUL if still.still_s >= stall_after_s * DOUBTFUL_SHARE else Judgement.FINE
