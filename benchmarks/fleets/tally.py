"""What a run measures: sums over the requests that ended in its window, integrals over time, samples of each engine."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from .engine import Engine, Request

BUCKET_S = 20.0
SAMPLE_S = 5.0
HIT_WINDOW = 20  # samples: 100 s


@dataclass(slots=True)
class Bucket:
    """What ended in one `BUCKET_S` of the run; tokens."""

    requests: int = 0
    prompt: int = 0
    answer: int = 0
    hit: int = 0


@dataclass(slots=True)
class Tally:
    """Counts from `begin` on; sums of seconds, tokens and requests."""

    begin: float
    requests: int = 0
    prompt: int = 0
    answer: int = 0
    hit: int = 0
    # Prompt tokens that no cache could have: not part of the rollout's last turn, nor of its group's first.
    new: int = 0
    ttft_s: float = 0.0
    tpot_s: float = 0.0
    tpot_requests: int = 0
    queue_s: float = 0.0
    e2e: list[float] = field(default_factory=list)
    moves: int = 0  # turns that went elsewhere than the one before
    repeats: int = 0  # turns sent again
    preemptions: int = 0
    in_flight: int = 0
    in_flight_s: float = 0.0
    running: list[int] = field(default_factory=list)
    buckets: defaultdict[int, Bucket] = field(default_factory=lambda: defaultdict(Bucket))
    counters: list[list[tuple[int, int]]] = field(default_factory=list)
    _since: float = 0.0

    def sent(self, now: float, change: int) -> None:
        """A request was sent (1) or has ended (-1)."""
        if now > self.begin:
            self.in_flight_s += self.in_flight * (now - max(self._since, self.begin))
        self._since = now
        self.in_flight += change

    def ended(self, request: Request, known: int, sent: float, arrived: float, now: float) -> None:
        """A request, of whose prompt a cache could have `known` tokens, got its answer.

        It was sent by the client, arrived at the engine, and ended now.
        """
        bucket = self.buckets[int(now / BUCKET_S)]
        bucket.requests += 1
        bucket.prompt += request.prompt
        bucket.answer += request.answer
        bucket.hit += request.hit
        if now <= self.begin:
            return
        self.requests += 1
        self.prompt += request.prompt
        self.answer += request.answer
        self.hit += request.hit
        self.new += request.prompt - known
        self.queue_s += request.admitted - arrived
        self.ttft_s += request.first_token - sent
        self.e2e.append(now - sent)
        if request.answer > 1:
            self.tpot_s += (now - request.first_token) / (request.answer - 1)
            self.tpot_requests += 1

    def sample(self, engines: Sequence[Engine], now: float) -> None:
        """Look at every engine, as a scrape of its `/metrics` would."""
        if now <= self.begin:
            return
        self.running.append(sum(len(engine.running) for engine in engines))
        self.counters.append([(engine.prefix_hits, engine.prefix_queries) for engine in engines])

    def worst_hit_rate(self) -> float:
        """The lowest prefix-cache hit rate that any engine had over any `HIT_WINDOW` samples."""
        rates = [
            (hits - hits_before) / (queries - queries_before)
            for before, after in zip(self.counters, self.counters[HIT_WINDOW:], strict=False)
            for (hits_before, queries_before), (hits, queries) in zip(before, after, strict=True)
            if queries > queries_before
        ]
        return min(rates, default=1.0)
