"""The members and who may serve now: the one owner of the records, the eligible lists and the waiting room.

Evidence comes in (`served`, `failed`, `observe`), state changes go out to whoever listens, and `pick` answers the
only question that a request has. No sockets here, and no clock but the one that is passed in.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from .failures import TURNED_DOWN, VERDICTS, Blame, Outcome
from .health import NEVER, Event, Record, Rules, State
from .policies import Choice, Policy, Pressure, Sample, Turn
from .shard import Shard
from .transport import Pool
from .urls import Endpoint, parse_backend

REST_S = 1.0  # for who turned a request down: answering at once, it looks idle, and would be chosen again and again


class Fleet:
    """All shards, in the order in which they were named."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        *,
        rules: Rules,
        policy: Policy[Shard],
        make_pool: Callable[[Endpoint], Pool],
        clock: Callable[[], float],
        trial_interval_s: float = 1.0,
        unproven: bool = False,
    ) -> None:
        self._rules = rules
        self._policy = policy
        self._make_pool = make_pool
        self._clock = clock
        self._trial_interval_s = trial_interval_s
        self._shards: dict[str, Shard] = {}
        self._waiters: dict[asyncio.Future[None], None] = {}  # who came first is woken first
        self._healthy: list[Shard] = []
        self._suspect: list[Shard] = []
        self._resting: dict[Shard, float] = {}  # until when; who rests longest is last
        self.paused = False  # somebody has announced it: silence is nobody's fault
        self._resumed_at = NEVER
        self._by_push = unproven
        self._unheard = False
        self.awaits_push = False  # whether requests wait for the controller's first set
        self.on_change: Callable[[Shard, State, State, str], None] = lambda *_: None
        start = State.STALE if unproven else State.HEALTHY
        for endpoint in endpoints:
            self._shards[endpoint.key] = Shard(endpoint, Record(rules, start), make_pool(endpoint))
        self._sort()

    # Questions

    @property
    def shards(self) -> Sequence[Shard]:
        """The members, RETIRED ones that still have work included."""
        return list(self._shards.values())

    @property
    def members(self) -> Sequence[Shard]:
        """The members that are not RETIRED."""
        return [shard for shard in self._shards.values() if shard.record.state is not State.RETIRED]

    @property
    def serving(self) -> bool:
        """Whether any shard may serve now."""
        return bool(self._healthy or self._suspect)

    def find(self, url: str) -> Shard | None:
        """The member with this URL, in whatever spelling; None if there is none, or if it is no URL."""
        try:
            return self._shards.get(parse_backend(url).key)
        except ValueError:
            return None

    @property
    def reads_turns(self) -> bool:
        """Whether the policy wants to know which conversation a request belongs to."""
        return self._policy.reads_turns

    def knows(self, key: bytes) -> bool:
        """Whether the policy needs no more of a session than its name."""
        return self._policy.knows(key, self._clock())

    @property
    def reads_metrics(self) -> bool:
        """Whether it wants to be told of engines' metrics."""
        return self._policy.reads_metrics

    @property
    def pressure(self) -> Pressure:
        """How full the engines' caches are, as far as they have been scraped."""
        return self._policy.pressure()

    def pick(self, turn: Turn, tried: Collection[Shard] = ()) -> Choice[Shard] | None:
        """The shard that serves next: a HEALTHY one, or else a SUSPECT one; never one of `tried`.

        One that has just turned a request down is left alone for a moment, if there is another. The choice is handed
        back to `release` when its attempt has ended.
        """
        if self._trials and (trial := self._trial(tried)) is not None:
            return Choice(trial)
        now = self._clock()
        choice = self._policy.choose(turn, now, (*tried, *self._at_rest(now))) if self._resting else None
        choice = choice or self._policy.choose(turn, now, tried)
        if choice is None:
            rest = [shard for shard in self._suspect if shard not in tried]
            choice = Choice(min(rest, key=lambda shard: shard.in_flight)) if rest else None
        return choice

    def release(self, choice: Choice[Shard], tokens: int | None = None, key: bytes = b"") -> None:
        """The attempt on a choice has ended: the context's tokens after its answer, and its session's name."""
        self._policy.ended(choice, self._clock(), tokens, key)
        if choice.shard.record.state is State.RETIRED:
            self._forget_idle_retired()

    def scraped(self, shard: Shard, sample: Sample) -> None:
        """An engine's metrics have been read."""
        self._policy.scraped(shard, sample, self._clock())

    def paused_since(self, started: float) -> bool:
        """Whether a pause was announced that lasts, or lasted at or after `started`."""
        return self.paused or self._resumed_at >= started

    async def wait_for_serving(self, timeout_s: float) -> bool:
        """Wait until a shard may serve, or may never; False after `timeout_s`. Waiters are woken all at once."""
        if self.serving:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await asyncio.wait_for(waiter, timeout_s)
        except TimeoutError:
            return self.serving
        finally:
            self._waiters.pop(waiter, None)
        return True

    # Evidence

    def attempt_ended(self, shard: Shard, outcome: Outcome, started: float, blame: Blame | None = None) -> None:
        """Weigh the end of one attempt of live traffic that was sent at `started`; by the table, without `blame`."""
        shard.outcomes[outcome] += 1
        if outcome in TURNED_DOWN:
            self._resting.pop(shard, None)
            self._resting[shard] = self._clock() + REST_S
        blame = VERDICTS[outcome].blame if blame is None else blame
        if blame is Blame.NONE:
            return
        record, before = shard.record, shard.record.state
        now = self._clock()
        if blame is Blame.CLEAR:
            shard.window.successes += 1
            record.served(started, now)
        elif record.failed(started, now):
            shard.window.failures += 1
        self._settle(shard, before, VERDICTS[outcome].reason)

    def observe(self, shard: Shard, event: Event, why: str) -> None:
        """Apply an event that is not live traffic."""
        before = shard.record.state
        shard.record.observe(event, self._clock())
        self._sort()  # the state may be the same and the right to a trial new
        self._settle(shard, before, why)

    def condemn(self, shard: Shard, why: str) -> None:
        """All that it has in flight failed at once: no further strike is needed."""
        before, now = shard.record.state, self._clock()
        if shard.record.failed(now, now, fatal=True):
            shard.window.failures += 1
        self._settle(shard, before, why)

    def probe_refused(self, shard: Shard, started: float, *, gone: bool) -> None:
        """A probe's generation failed, or nobody listens any more (`gone`): as good as a failed request."""
        if self.paused:
            return
        before = shard.record.state
        now = self._clock()
        shard.record.failed(started, now)
        if gone and before is State.STALE:
            shard.record.observe(Event.SILENT, now)
        self._settle(shard, before, "probe_failed")

    def probe_unanswered(self, shard: Shard, started: float) -> None:
        """A probe timed out or was turned down."""
        if self.paused:
            return
        before = shard.record.state
        shard.record.unanswered(started, self._clock(), busy=shard.in_flight > 0)
        self._settle(shard, before, "probe_unanswered")

    # What a controller says

    def set_paused(self, *, paused: bool) -> None:
        """Whether the engines are paused, so that nothing that they leave unanswered counts against them."""
        if self.paused and not paused:
            self._resumed_at = self._clock()
        self.paused = paused

    def set_serving(self, urls: Iterable[str]) -> list[str]:
        """A controller's full set of shards that may serve. Returns the URLs that are no member."""
        wanted, unknown = self._match(urls)
        for shard in self.members:
            self.observe(shard, Event.VOUCHED if shard in wanted else Event.WITHHELD, "pushed")
        self.awaits_push = self._unheard = False
        self._wake()
        return unknown

    def serve_unvouched(self) -> None:
        """No set has come in time: whoever is a member serves, until one comes."""
        self.awaits_push, self._unheard = False, True
        for shard in self.members:
            self.observe(shard, Event.UNHEARD, "no set was pushed")

    def set_members(self, endpoints: Iterable[Endpoint]) -> None:
        """Replace the whole membership. Who is left out is RETIRED: it finishes its work and gets no more."""
        wanted = {endpoint.key: endpoint for endpoint in endpoints}
        for key, shard in list(self._shards.items()):
            if key not in wanted:
                self.observe(shard, Event.REMOVED, "membership")
        for key, endpoint in wanted.items():
            known = self._shards.get(key)
            if known is None:
                known = Shard(endpoint, Record(self._rules, State.RETIRED), self._make_pool(endpoint))
                self._shards[key] = known
            if known.record.state is State.RETIRED:
                self.observe(known, Event.JOINED, "membership")
                if self._by_push and not self._unheard:
                    self.observe(known, Event.WITHHELD, "not pushed yet")
        self._forget_idle_retired()

    def close(self) -> None:
        """Drop every connection."""
        for shard in self._shards.values():
            shard.pool.close()

    def _forget_idle_retired(self) -> None:
        for key, shard in list(self._shards.items()):
            if shard.record.state is State.RETIRED and not shard.in_flight:
                shard.pool.close()
                del self._shards[key]

    def _match(self, urls: Iterable[str]) -> tuple[set[Shard], list[str]]:
        found, unknown = set(), []
        for url in urls:
            shard = self.find(url)
            if shard is None:
                unknown.append(url)
            else:
                found.add(shard)
        return found, unknown

    def _at_rest(self, now: float) -> Iterable[Shard]:
        while self._resting and (first := next(iter(self._resting.items())))[1] <= now:
            del self._resting[first[0]]
        return self._resting

    def _trial(self, tried: Collection[Shard]) -> Shard | None:
        now = self._clock()
        for shard in self._trials:
            if not shard.in_flight and now - shard.last_trial >= self._trial_interval_s and shard not in tried:
                shard.last_trial = now
                return shard
        return None

    def _settle(self, shard: Shard, before: State, why: str) -> None:
        after = shard.record.state
        if after is before:
            return
        self._sort()
        if self.serving:
            self._wake()
        self.on_change(shard, before, after, why)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _sort(self) -> None:
        shards = self._shards.values()
        healthy = [shard for shard in shards if shard.record.state is State.HEALTHY]
        suspect = [shard for shard in shards if shard.record.state is State.SUSPECT]
        if healthy != self._healthy or suspect != self._suspect:
            serving, resting = (healthy, suspect) if healthy else (suspect, healthy)
            self._policy.set_serving(serving, self._clock(), resting)
        self._healthy, self._suspect = healthy, suspect
        self._trials = [shard for shard in self._suspect if shard.record.trial]
