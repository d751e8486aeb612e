"""Two legs as one attempt: prefill on one server, decode on another that fetches the KV cache of the first.

One deadline and one client for both: whatever ends the pair closes the connection of the leg that is under way. The
decode server is chosen, and counted as busy, before the prefill leg is sent, since what that leg leaves behind is held
for seconds only.
"""

import time
from collections.abc import Awaitable, Callable
from enum import Enum
from uuid import uuid4

from .attempt import Attempt, Leg
from .calls import Call, Transfer
from .events import LOG, Journal
from .failures import Outcome, Reached
from .fleet import Fleet
from .health import SERVING
from .metrics import Tally
from .policies import Turn
from .shard import Shard
from .two_leg import PARAMS, Missing, Plan, plan_legs, read_transfer, with_members, without_lines

# vLLM holds the blocks for 30 s, and from the moment that the decode server knows of them for longer.
REUSED_WITHIN_S = 15.0
REQUEST_ID = b"x-request-id"
# The prefill leg's answer is read here: nothing is won by compressing it.
OWN_LINES = frozenset({REQUEST_ID, b"accept-encoding"})

RunLeg = Callable[[Leg, Call], Awaitable[Attempt]]


class Pairing(Enum):
    """What became of the prefill half of a request; counted, and in the event log."""

    PAIRED = "paired"  # a decode leg was sent with parameters
    NOT_APPLICABLE = "not_applicable"  # such a request is served by one server
    NO_PREFILL = "no_prefill"  # no prefill server may serve
    PAUSED = "paused"  # a paused decode server keeps no lease alive
    MISSING_PARAMS = "missing_params"  # a whole answer without parameters: is a connector configured?
    PUSH_MODE = "push_mode"  # a prefill server whose connector pushes
    FAILED = "failed"  # the prefill leg ended without an answer that is of use
    EXPIRED = "expired"  # parameters that no decode server took in time


MISSING = {Missing.NO_PARAMS: Pairing.MISSING_PARAMS, Missing.PUSH_MODE: Pairing.PUSH_MODE}
WARNED = frozenset(MISSING.values())


class Pairs:
    """Runs attempts of two legs. Without a prefill leg, the decode server does all of the work: right, only slower."""

    def __init__(self, decode: Fleet, prefill: Fleet, run: RunLeg, tally: Tally, journal: Journal) -> None:
        self._decode = decode
        self._prefill = prefill
        self._run = run
        self._tally = tally
        self._journal = journal

    async def attempt(self, shard: Shard, call: Call) -> Attempt:
        """Try `shard` as the decode half."""
        if call.legs is None:
            call.legs = plan_legs(call.path, call.body)
        if call.legs.plan is Plan.REFUSED:
            call.last, call.detail = Outcome.BAD_REQUEST, f"{PARAMS} are the router's to set: leave them out"
            return Attempt(call.last, call.detail, Reached.NONE, reused=False)
        with shard.load:  # kept free while the prefill leg runs
            ended = await self._prepare(call, shard)
        if ended is not None:
            return ended
        return await self._decode_leg(shard, call)

    async def _prepare(self, call: Call, decode: Shard) -> Attempt | None:
        """Get parameters for a decode leg if they can be had; an Attempt when the pair ends here."""
        if not self._wants_prefill(call):
            return None
        choice = self._prefill.pick(Turn(), call.prefilled_by)
        if choice is None:
            self._note(Pairing.NO_PREFILL, call)
            return None
        try:
            ended = await self._prefill_leg(choice.shard, call)
        finally:
            self._prefill.release(choice)
        if ended is None and decode.record.state not in SERVING:
            call.last, call.detail = Outcome.NO_SHARD, "the decode server left while its prompt was computed"
            return Attempt(Outcome.UNREACHABLE, call.detail, Reached.NONE, reused=False)  # free: it was sent nothing
        return ended

    def _wants_prefill(self, call: Call) -> bool:
        if call.legs is None or call.legs.plan is not Plan.TWO_LEGS:
            self._note(Pairing.NOT_APPLICABLE, call)
            return False
        if call.transfer is not None and time.monotonic() - call.transfer.at > REUSED_WITHIN_S:
            call.transfer = None
            self._note(Pairing.EXPIRED, call)
        if self._decode.paused:
            call.transfer = None
            self._note(Pairing.PAUSED, call)
            return False
        return call.transfer is None

    async def _prefill_leg(self, shard: Shard, call: Call) -> Attempt | None:
        assert call.legs is not None  # noqa: S101 - for the type checker: `attempt` has set it
        number = f"{call.id}-{uuid4().hex[:12]}".encode("latin-1")
        lines = without_lines(call.lines, OWN_LINES) + id_line(number)
        leg = Leg(self._prefill, shard, lines, call.legs.prefill, prefill=True)
        try:
            attempt = await self._run(leg, call)
        except BaseException:
            self._note(Pairing.FAILED, call)
            raise
        if attempt.outcome is not Outcome.SERVED or attempt.answer is None:
            self._note(Pairing.FAILED, call)
            return attempt
        found = transfer_of(attempt)
        if isinstance(found, Missing):
            self._note(MISSING[found], call, shard)
        else:
            call.transfer = Transfer(found, number, time.monotonic())
        return None

    async def _decode_leg(self, shard: Shard, call: Call) -> Attempt:
        transfer, call.transfer = call.transfer, None
        if transfer is not None and self._decode.paused:  # since the prefill leg was sent
            self._note(Pairing.PAUSED, call)
            transfer = None
        if transfer is None:
            return await self._run(Leg(self._decode, shard, call.lines, call.body), call)
        self._note(Pairing.PAIRED, call)
        lines = without_lines(call.lines, frozenset({REQUEST_ID})) + id_line(transfer.id)
        body = with_members(call.body, {PARAMS: transfer.params})
        attempt = await self._run(Leg(self._decode, shard, lines, body, paired=True), call)
        if attempt.outcome is Outcome.UNREACHABLE and attempt.reached is Reached.NONE:
            call.transfer = transfer  # the only way in which nobody can have fetched anything
        return attempt

    def _note(self, pairing: Pairing, call: Call, shard: Shard | None = None) -> None:
        self._tally.paired(pairing.value)
        if pairing in WARNED and shard is not None:
            fields = {"request": call.id, "shard": shard.url, "result": pairing.value}
            LOG.warning("prefill without transfer parameters", extra={"fields": fields})
            self._journal.write("prefill", fields)
        elif self._journal.enabled:
            self._journal.write("prefill", {"request": call.id, "result": pairing.value})


def id_line(number: bytes) -> bytes:
    """The header line that carries a pair's id."""
    return b"X-Request-Id: %b\r\n" % number


def transfer_of(attempt: Attempt) -> bytes | Missing:
    """What a served prefill leg has left behind."""
    try:
        return Missing.NO_PARAMS if attempt.answer is None else read_transfer(attempt.answer.body)
    except (ValueError, RecursionError):  # a content coding that was not asked for, or a nest
        return Missing.NO_PARAMS
