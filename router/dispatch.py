"""The attempt loop: one request, one monotonic budget, exactly one answer.

What to do after each outcome is in the table of `failures`; which shard comes next is the fleet's answer; how far an
attempt got is the transport's. This file only walks from one to the next, and reports each step.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from .answers import Answer, Statuses, failure_answer
from .attempt import PAIRED_BLAME, Attempt, Leg
from .calls import Call
from .conversation import answer_key, context_tokens, turn_of
from .events import LOG, Journal
from .failures import VERDICTS, AttemptError, Blame, ClientGoneError, Outcome, Reached, Reply, Retry, fair, may_go_on
from .fleet import Fleet
from .headers import passed_back, request_head
from .judge import judge
from .metrics import Tally
from .pairs import Pairs
from .poison import PoisonMemory, digest, is_poison
from .policies import Choice, Turn
from .relay import relay
from .shard import Shard
from .upstream_connection import Response


@dataclass(frozen=True, slots=True)
class Limits:
    """The dispatcher's settings. Times in seconds."""

    max_attempts: int = 2
    no_shard_hold_s: float = 0.0
    poison_after: int = 3
    max_answer: int = 1 << 30


class Dispatcher:
    """Turns calls into answers."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        limits: Limits,
        statuses: Statuses,
        journal: Journal,
        tally: Tally,
        prefill: Fleet | None = None,
    ) -> None:
        self._fleet = fleet
        self._limits = limits
        self._statuses = statuses
        self._journal = journal
        self._tally = tally
        self._poison = PoisonMemory()
        self._fleets = (fleet,) if prefill is None else (fleet, prefill)
        self._pairs = None if prefill is None else Pairs(fleet, prefill, self._run, tally, journal)

    async def dispatch(self, call: Call) -> Answer | None:
        """The answer to `call`, or None when it was streamed or the client has left.

        Raises nothing but CancelledError, which is how the listener says that the client has gone.
        """
        try:
            answer = await self._answer(call)
        except asyncio.CancelledError:
            self._ended(call, Outcome.CLIENT_GONE, None)
            raise
        self._ended(call, call.last, answer)
        return answer

    async def _answer(self, call: Call) -> Answer | None:
        if self._poison and self._is_poison(call):
            return self._refuse(call)
        fleet = self._fleet
        turn = turn_of(call.path, call.session, call.body, fleet.knows) if fleet.reads_turns else Turn()
        while True:
            choice = self._fleet.pick(turn, call.tried)
            if choice is None:
                if not call.tried and await self._held(call):
                    continue
                return self._refuse(call)
            attempt = await self._attempt_on(choice, call, turn)
            reply = VERDICTS[attempt.outcome].reply
            if reply is not Reply.TRY_AGAIN and reply is not Reply.GIVE_UP:
                return attempt.answer
            if self._poison and self._is_poison(call):
                return self._refuse(call)
            remaining = call.deadline - time.monotonic()
            if not may_go_on(
                attempt.outcome,
                delivered=call.delivered,
                max_attempts=self._limits.max_attempts,
                remaining_s=remaining,
            ):
                return self._refuse(call)

    async def _held(self, call: Call) -> bool:
        until = call.deadline
        if not self._fleet.awaits_push:
            until = min(until, call.started + self._limits.no_shard_hold_s)
        hold = until - time.monotonic()
        return hold > 0 and await self._fleet.wait_for_serving(hold)

    # One shard

    async def _attempt_on(self, choice: Choice[Shard], call: Call, turn: Turn) -> Attempt:
        """Try a shard, and give the choice back however that ends."""
        tokens, key = None, b""
        try:
            attempt = await self._attempt_at(choice.shard, call)
            if attempt.outcome is Outcome.SERVED and self._fleet.reads_turns:
                body = b"" if attempt.answer is None else attempt.answer.body
                tokens = context_tokens(body) or turn.tokens
                key = answer_key(turn, body)
        finally:
            self._fleet.release(choice, tokens, key)
        return attempt

    async def _attempt_at(self, shard: Shard, call: Call) -> Attempt:
        """Try a shard, on its own or as the decode half of a pair."""
        if self._pairs is not None:
            return await self._pairs.attempt(shard, call)
        return await self._run(Leg(self._fleet, shard, call.lines, call.body), call)

    async def _run(self, leg: Leg, call: Call) -> Attempt:
        """Try once, or once more on a fresh connection if the pooled one had been closed."""
        (call.prefilled_by if leg.prefill else call.tried).append(leg.shard)
        started = time.monotonic()
        # Sent twice, the parameters of a pair might be used twice.
        attempt = await self._attempt(leg, call, started, fresh=leg.paired)
        if VERDICTS[attempt.outcome].retry is Retry.SAME_SHARD:
            leg.fleet.attempt_ended(leg.shard, attempt.outcome, started)
            again = time.monotonic()
            attempt = await self._attempt(leg, call, again, fresh=True)
            if attempt.outcome is Outcome.UNREACHABLE:
                # Nobody listens any more, so the first connection went down with its server, work and all.
                attempt = Attempt(Outcome.BROKE, attempt.detail, Reached.WRITTEN, attempt.reused)
            else:
                started = again
        self._note(leg, call, attempt, started)
        return attempt

    async def _attempt(self, leg: Leg, call: Call, started: float, *, fresh: bool) -> Attempt:
        shard, endpoint = leg.shard, leg.shard.endpoint
        head = request_head(call.method, endpoint.base_path + call.target, endpoint.authority, leg.lines, len(leg.body))
        with shard.load:
            try:
                response = await shard.pool.exchange(head, leg.body, call.deadline, fresh=fresh)
                attempt = await self._read(leg, call, response)
            except AttemptError as error:
                outcome = self._fair(error.outcome, call, started)
                attempt = Attempt(outcome, error.detail, error.reached, error.reused)
            except ClientGoneError as error:
                attempt = Attempt(Outcome.CLIENT_GONE, str(error), Reached.HEAD, reused=False)
            except asyncio.CancelledError:
                gone = Attempt(Outcome.CLIENT_GONE, "the client left", Reached.WRITTEN, reused=False)
                self._report(leg, call, gone, started)
                leg.fleet.attempt_ended(shard, gone.outcome, started)
                raise
        self._report(leg, call, attempt, started)
        return attempt

    def _fair(self, outcome: Outcome, call: Call, started: float) -> Outcome:
        budget_s = call.deadline - call.started
        paused = self._fleet.paused_since(started)
        return fair(outcome, had_s=call.deadline - started, budget_s=budget_s, paused=paused)

    async def _read(self, leg: Leg, call: Call, response: Response) -> Attempt:
        if response.stream is not None and leg.prefill:
            response.stream.drop()
            return Attempt(Outcome.INVALID, "a stream, which was not asked for", Reached.HEAD, response.reused)
        if response.stream is not None:
            end = await relay(call, response, response.stream)
            return Attempt(end.outcome, end.detail, end.reached, response.reused, response.status)
        status, body = response.status, response.body
        outcome, detail = judge(status, response.headers, body, self._limits.max_answer)
        answer = None
        if VERDICTS[outcome].reply is Reply.UPSTREAM:
            answer = Answer(status, passed_back(response.headers), body)
        return Attempt(outcome, detail, Reached.BODY, response.reused, status, answer)

    def _note(self, leg: Leg, call: Call, attempt: Attempt, started: float) -> None:
        """Let the end of an attempt count, for the shard and for the call."""
        outcome, shard = attempt.outcome, leg.shard
        verdict = VERDICTS[outcome]
        blame = PAIRED_BLAME.get(outcome, verdict.blame) if leg.paired else verdict.blame
        leg.fleet.attempt_ended(shard, outcome, started, blame)
        if leg.prefill and outcome is Outcome.SERVED:
            return  # half of an attempt, which the decode leg ends
        call.last, call.detail, call.upstream_status = outcome, attempt.detail, attempt.status
        if outcome is Outcome.SERVED and self._poison:
            self._poison.forgive(digest(call.target, call.body))
        if verdict.retry is not Retry.FREE:
            call.delivered += 1
            if blame is Blame.STRIKE and call.body:
                self._poison.broke(digest(call.target, call.body), shard.url, time.monotonic())

    # Endings

    def _is_poison(self, call: Call) -> bool:
        self._poison.expire(time.monotonic())
        victims = self._poison.victims(digest(call.target, call.body)) if call.body else {}
        if not any(self._broke_itself(fleet, victims) for fleet in self._fleets):
            return False
        call.last, call.upstream_status = Outcome.POISON, None
        call.detail = f"this request broke {len(victims)} shards: {', '.join(victims)}"
        return True

    def _broke_itself(self, fleet: Fleet, victims: Mapping[str, float]) -> bool:
        """Each role on its own: that prefill servers serve says nothing for decode servers, all of which may fail."""
        foreign = {shard.url for other in self._fleets if other is not fleet for shard in other.shards}
        broke_at = {url: at for url, at in victims.items() if url not in foreign}
        proved = {shard.url: shard.record.proved_at for shard in fleet.shards}
        return is_poison(broke_at, proved, self._limits.poison_after)

    def _refuse(self, call: Call) -> Answer:
        message = f"{VERDICTS[call.last].reason}: {call.detail}"
        return failure_answer(
            self._statuses,
            call.last,
            message,
            serving=self._fleet.serving,
            upstream_status=call.upstream_status,
        )

    def _report(self, leg: Leg, call: Call, attempt: Attempt, started: float) -> None:
        verdict = VERDICTS[attempt.outcome]
        good = verdict.reply is Reply.UPSTREAM
        if good and not self._journal.enabled:
            return
        fields = {
            "request": call.id,
            "shard": leg.shard.url,
            **({"leg": "prefill" if leg.prefill else "decode"} if self._pairs is not None else {}),
            "failure": None if good else attempt.outcome.name.lower(),
            "reached": attempt.reached.name.lower(),
            "reused": attempt.reused,
            "status": attempt.status,
            "elapsed_s": round(time.monotonic() - started, 6),
            "reason": attempt.detail or None,
        }
        if not good:
            level = logging.DEBUG if attempt.outcome is Outcome.CLIENT_GONE else logging.WARNING
            LOG.log(level, "attempt failed", extra={"fields": fields})
        self._journal.write("attempt", fields)

    def _ended(self, call: Call, outcome: Outcome, answer: Answer | None) -> None:
        streamed = call.upstream_status if VERDICTS[outcome].reply in {Reply.UPSTREAM, Reply.EVENT} else None
        status = streamed if answer is None else answer.status
        elapsed = time.monotonic() - call.started
        self._tally.answered(status, VERDICTS[outcome].reason, elapsed)
        if self._journal.enabled:
            fields = {
                "request": call.id,
                "path": call.path,
                "status": status,
                "reason": VERDICTS[outcome].reason,
                "elapsed_s": round(elapsed, 6),
                "delivered": call.delivered,
                "shards": [shard.url for shard in call.tried],
            }
            self._journal.write("answer", fields)
