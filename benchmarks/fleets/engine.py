"""One simulated vLLM engine: continuous batching, first come first served, with chunked prefill. No clock of its own.

An engine advances in segments: one scheduler step while something is prefilled, and as many equal steps as nothing
changes in while it only decodes; an arrival cuts a segment at the end of its current step. After vLLM's scheduler:
decodes first, then prefill chunks within a step's tokens; a waiting request is admitted only if its whole context
fits; where decoding needs room, the youngest running request is preempted and computed again.
"""

from collections import deque
from math import ceil
from typing import NamedTuple

from .kv_cache import KvCache, Prefix
from .parameters import EngineModel

LONGEST_SEGMENT = 400  # steps: the context tokens that they read are taken at the mean


class Request:
    """One turn of a rollout on one engine; lengths in tokens, times in seconds."""

    __slots__ = ("admitted", "answer", "chunk", "context", "first_token", "hit", "prefill", "prefix", "prompt", "rest")

    def __init__(self, prefix: Prefix, prompt: int, answer: int) -> None:
        self.prefix = prefix
        self.prompt = prompt
        self.answer = answer
        self.context = prompt  # prompt and what has been decoded
        self.rest = answer  # still to be decoded
        self.prefill = 0  # still to be prefilled
        self.chunk = 0  # of that, in the present step
        self.hit = -1  # tokens found in the cache when first admitted
        self.admitted = -1.0
        self.first_token = -1.0


class Segment(NamedTuple):
    """Some equal steps."""

    steps: int
    step_s: float

    @property
    def seconds(self) -> float:
        """How long they take."""
        return self.steps * self.step_s

    def cut(self, elapsed: float) -> "Segment":
        """The same, ended with the step that runs now."""
        return Segment(min(self.steps, max(1, ceil(elapsed / self.step_s - 1e-9))), self.step_s)


class Engine:
    """The state of one engine. `plan` a segment, let its time pass, `finish` it; the counters are vLLM's."""

    __slots__ = ("_model", "cache", "preemptions", "prefix_hits", "prefix_queries", "recomputed", "running", "waiting")

    def __init__(self, model: EngineModel) -> None:
        self._model = model
        self.cache = KvCache(model.kv_tokens, model.hit_tokens)
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.prefix_queries = 0  # tokens
        self.prefix_hits = 0  # tokens
        self.preemptions = 0  # requests
        self.recomputed = 0  # tokens prefilled a second time

    def plan(self, now: float) -> Segment | None:
        """Schedule what comes next; None while there is nothing to do."""
        preempted = self._make_room()
        decoding = context = 0
        shortest = LONGEST_SEGMENT
        for request in self.running:
            if not request.prefill:
                decoding += 1
                context += request.context
                shortest = min(shortest, request.rest)
        left, cost = self._continue_prefills(self._model.step_tokens - decoding)
        if not preempted:
            left, more = self._admit(left, now)
            cost += more
        if not self.running:
            return None
        steps = 1
        if left == self._model.step_tokens - decoding:
            room = (self.cache.capacity - self.cache.used) // decoding
            steps = max(1, min(shortest, room))
        return Segment(steps, self._step_s(context + decoding * (steps - 1) / 2, cost))

    def finish(self, segment: Segment, now: float) -> list[Request]:
        """A segment's time has passed: the requests that it completed."""
        grown = 0
        done = []
        for request in self.running:
            grown += self._advance(request, segment.steps, now)
            if request.rest <= 0 and not request.prefill:
                done.append(request)
        self.cache.grow(grown)
        for request in done:
            self.running.remove(request)
            self.cache.release(request.prefix, request.context, request.context - 1)
        return done

    def _step_s(self, context: float, prefill: float) -> float:
        model = self._model
        fixed = model.base_s + model.per_seq_s * len(self.running)
        return fixed + model.per_context_s * context + model.per_prefill_s * prefill

    def _advance(self, request: Request, steps: int, now: float) -> int:
        """Tokens that a request decoded; the last chunk of a prefill brings the first one."""
        if request.prefill:
            request.prefill -= request.chunk
            if request.prefill or not request.chunk:
                return 0
            if request.first_token < 0:
                request.first_token = now
            steps = 1
        request.context += steps
        request.rest -= steps
        return steps

    def _make_room(self) -> bool:
        """Preempt the youngest until one more token of each that decodes fits."""
        decoding = sum(not request.prefill for request in self.running)
        preempted = False
        while self.cache.used + decoding > self.cache.capacity and len(self.running) > 1:
            request = self.running.pop()
            decoding -= not request.prefill
            self.cache.release(request.prefix, request.context, request.context - request.prefill)
            self.waiting.appendleft(request)
            self.preemptions += 1
            preempted = True
        return preempted

    def _continue_prefills(self, budget: int) -> tuple[int, float]:
        cost = 0.0
        for request in self.running:
            if request.prefill:
                cost += self._take_chunk(request, budget)
                budget -= request.chunk
        return budget, cost

    def _admit(self, budget: int, now: float) -> tuple[int, float]:
        cost = 0.0
        while self.waiting and budget > 0 and len(self.running) < self._model.max_num_seqs:
            request = self.waiting[0]
            if self.running and not self.cache.fits(request.prefix, request.context):
                break
            self.waiting.popleft()
            hit = self.cache.hit(request.prefix, request.context)
            request.prefill = request.context - hit
            self._count(request, hit, now)
            self.cache.hold(request.prefix, request.context)
            self.running.append(request)
            cost += self._take_chunk(request, budget)
            budget -= request.chunk
        return budget, cost

    def _count(self, request: Request, hit: int, now: float) -> None:
        if request.hit >= 0:
            self.recomputed += request.prefill
            return
        request.hit = hit
        request.admitted = now
        self.prefix_hits += hit
        self.prefix_queries += request.context

    def _take_chunk(self, request: Request, budget: int) -> float:
        """The next chunk of a prefill, and its cost in tokens without a prefix."""
        request.chunk = chunk = min(request.prefill, budget)
        return chunk * (1 + self._model.per_prefix * (request.context - request.prefill + chunk / 2))
