"""The progress watch: finds wedged engines in seconds, and takes their requests away from them.

It looks at the engines that have requests of this router's, never on the path of a request, and on connections of
its own. What a look means is in `progress`; what follows for the shard's health, in `fleet`; for its requests, in the
table of `failures`.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from .events import LOG, Journal
from .failures import Outcome
from .fleet import Fleet
from .probes import Finding, ask, ask_generation
from .progress import Judgement, Look, Sight, Stillness, judge_stillness, read_metrics
from .rounds import Rounds
from .shard import Shard
from .transport import Pool
from .urls import Endpoint

LOOKS = 5  # each of which has its turn to answer, within the time after which an engine is wedged


class WedgeWatch:
    """Looks after every shard that has requests in flight, one that has left the fleet included."""

    def __init__(
        self, fleet: Fleet, stall_after_s: float, make_pool: Callable[[Endpoint], Pool], journal: Journal
    ) -> None:
        self._fleet = fleet
        self._stall_after_s = stall_after_s
        self._make_pool = make_pool
        self._journal = journal
        self._seen: dict[Shard, Stillness] = {}
        self._interval_s = stall_after_s / LOOKS
        self._rounds = Rounds(lambda: fleet.shards, self._interval_s, self.check)

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._rounds.run()

    async def check(self, shard: Shard) -> None:
        """Look at one shard once, and act on what is seen.

        One without requests is looked at until it has answered once: a silence means something where there was more.
        """
        known = self._seen.get(shard)
        if known is not None and not self._to_be_judged(shard):
            self._seen[shard] = known.broken(time.monotonic(), self._rounds.delays)
            return
        pool = self._make_pool(shard.endpoint)
        try:
            look = await self._look(shard, pool)
            if known is None and look.sight is Sight.SILENCE:
                return
            still = (known or Stillness()).after(
                look, at=time.monotonic(), delays=self._rounds.delays, heard_at=shard.pool.heard_at
            )
            judgement = judge_stillness(still, self._stall_after_s)
            if judgement is Judgement.DOUBTFUL:
                answers = await self._engine_answers(shard, pool)
                still = still.broken(time.monotonic(), self._rounds.delays) if answers else replace(still, asked=True)
        finally:
            pool.close()
        self._keep(shard, still)
        if judgement is Judgement.WEDGED and self._to_be_judged(shard):
            self._take_away(shard, still.still_s)

    def _to_be_judged(self, shard: Shard) -> bool:
        return shard.in_flight > 0 and not self._fleet.paused

    def _keep(self, shard: Shard, still: Stillness) -> None:
        self._seen[shard] = still
        if len(self._seen) > len(shards := self._fleet.shards):
            self._seen = {known: self._seen[known] for known in shards if known in self._seen}

    async def _look(self, shard: Shard, pool: Pool) -> Look:
        answer = await ask(shard, pool, b"GET", b"/metrics", timeout_s=self._interval_s)
        return Look(Sight.SILENCE) if isinstance(answer, Finding) else read_metrics(answer.status, answer.body)

    async def _engine_answers(self, shard: Shard, pool: Pool) -> bool:
        """Whether the engine itself answers: the question whether it is paused, or one for a token.

        A paused one answers the first and not the second; a wedged one neither. In production there is no such route.
        """
        timeout_s = self._stall_after_s / 3
        paused, generation = await asyncio.gather(
            ask(shard, pool, b"GET", b"/is_paused", timeout_s=timeout_s), ask_generation(shard, pool, timeout_s)
        )
        return generation is Finding.WELL or (not isinstance(paused, Finding) and paused.status == 200)  # noqa: PLR2004

    def _take_away(self, shard: Shard, still_s: float) -> None:
        fields = {"shard": shard.url, "still_s": round(still_s, 3), "in_flight": shard.in_flight}
        LOG.warning("shard is wedged", extra={"fields": fields})
        self._journal.write("wedged", fields)
        self._fleet.condemn(shard, "no progress")
        shard.pool.drop(Outcome.WEDGED, f"the engine has made no progress for {still_s:.1f} s")
