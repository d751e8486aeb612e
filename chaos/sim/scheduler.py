"""The engine's decisions: who decodes, what comes out of a step, what the prefix cache keeps. No clock, no socket."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .settings import Settings
from .tokens import generate

FINISHES = ("stop", "length", "abort", "error", "repetition")


@dataclass(slots=True)
class Sequence:
    """One request in the engine."""

    id: int
    prompt: list[int]
    tokens: list[int]
    finish: str
    stream: bool
    done: int = 0  # tokens decoded so far
    sent: int = 0  # tokens that the API server has been given


@dataclass(frozen=True, slots=True)
class Output:
    """New tokens of one request, and how it ended if it did."""

    id: int
    tokens: list[int]
    finish: str | None


@dataclass
class Stats:
    """What `/metrics` is made from; counters are totals since the engine's start, of tokens unless said otherwise."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    prefix_queries: int = 0
    prefix_hits: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISHES, 0))  # requests

    def snapshot(self) -> dict[str, Any]:
        """What they are at this moment."""
        return vars(self) | {"finished": self.finished.copy()}


class PrefixCache:
    """Which blocks of prompts were seen lately: each block is known by its whole prefix, the oldest go first."""

    def __init__(self, block_size: int, capacity: int) -> None:
        self._block_size = block_size
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def look_up(self, prompt: list[int]) -> int:
        """How many leading tokens are cached; the last token is always computed. The prompt is cached from now on."""
        prefixes = list(self._prefixes(prompt))
        hits = next((n for n, prefix in enumerate(prefixes) if prefix not in self._blocks), len(prefixes))
        for prefix in prefixes:
            self._blocks[prefix] = None
            self._blocks.move_to_end(prefix)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return hits * self._block_size

    def _prefixes(self, prompt: list[int]) -> Iterator[int]:
        prefix = 0
        for end in range(self._block_size, len(prompt), self._block_size):
            prefix = hash((prefix, *prompt[end - self._block_size : end]))
            yield prefix

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()


class Scheduler:
    """Continuous batching: every running request gets one token a step, the others wait for a place."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._cache = PrefixCache(settings.block_size, settings.num_blocks)
        self._waiting: OrderedDict[int, Sequence] = OrderedDict()
        self._running: dict[int, Sequence] = {}
        self._used_blocks = 0
        self.stats = Stats()
        self.prefilled = 0  # prompt tokens that the last step had to compute
        self.paused = False
        self.frozen = False

    def add(self, request: int, prompt: list[int], max_tokens: int, *, ignore_eos: bool, stream: bool) -> None:
        """Queue a request."""
        tokens, finish = generate(self._settings.seed, prompt, max_tokens, ignore_eos=ignore_eos)
        self._waiting[request] = Sequence(request, prompt, tokens, finish, stream)

    def drop(self, request: int) -> None:
        """Forget a request whose client has left; an unknown one has just finished."""
        self._waiting.pop(request, None)
        if sequence := self._running.pop(request, None):
            self._release(sequence)
        self._count()

    def abort_all(self) -> list[Output]:
        """End everything with what it has, as a shutdown and `/pause` do."""
        ended = [*self._running.values(), *self._waiting.values()]
        outputs = [self._finish(sequence, "abort") for sequence in ended]
        self._waiting.clear()
        self._count()
        return outputs

    def pause(self, mode: str) -> list[Output]:
        """Admit nothing more: mode "abort" ends what is there, "wait" lets what runs finish, "keep" freezes it."""
        self.paused = True
        self.frozen = mode == "keep"
        return self.abort_all() if mode == "abort" else []

    def resume(self) -> None:
        """Admit and decode again."""
        self.paused = self.frozen = False

    def busy(self) -> bool:
        """Whether a step would do anything."""
        return (bool(self._running) and not self.frozen) or (bool(self._waiting) and not self.paused)

    def idle(self) -> bool:
        """Whether nothing runs."""
        return not self._running

    def step(self) -> list[Output]:
        """Admit, then decode one token of every running request (all tokens at once where a token takes no time).

        Where prefill takes time, what was just admitted decodes from the next step on.
        """
        decoding = list(self._running.values())
        self.prefilled = 0
        if not self.paused:
            self._admit()
        if not self._settings.prefill_us:
            decoding = list(self._running.values())
        tokens = 1 if self._settings.token_ms > 0 else self._settings.max_model_len
        outputs = [] if self.frozen else [out for sequence in decoding if (out := self._decode(sequence, tokens))]
        self._count()
        return outputs

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._settings.max_num_seqs:
            sequence = next(iter(self._waiting.values()))
            blocks = self._blocks(sequence)
            if self._running and self._used_blocks + blocks > self._settings.num_blocks:
                return
            self._running[sequence.id] = self._waiting.pop(sequence.id)
            self._used_blocks += blocks
            self.stats.prefix_queries += len(sequence.prompt)
            hits = self._cache.look_up(sequence.prompt)
            self.prefilled += len(sequence.prompt) - hits
            self.stats.prefix_hits += hits
            self.stats.prompt_tokens += len(sequence.prompt)

    def _decode(self, sequence: Sequence, tokens: int) -> Output | None:
        before = sequence.done
        sequence.done = min(before + tokens, len(sequence.tokens))
        self.stats.generation_tokens += sequence.done - before
        if sequence.done == len(sequence.tokens):
            return self._finish(sequence, sequence.finish)
        return self._output(sequence, None) if sequence.stream else None

    def _finish(self, sequence: Sequence, reason: str) -> Output:
        if self._running.pop(sequence.id, None):
            self._release(sequence)
        self.stats.finished[reason] += 1
        return self._output(sequence, reason)

    def _output(self, sequence: Sequence, finish: str | None) -> Output:
        new, sequence.sent = sequence.tokens[sequence.sent : sequence.done], sequence.done
        return Output(sequence.id, new, finish)

    def _blocks(self, sequence: Sequence) -> int:
        return -(-(len(sequence.prompt) + len(sequence.tokens)) // self._settings.block_size)

    def _release(self, sequence: Sequence) -> None:
        self._used_blocks -= self._blocks(sequence)

    def _count(self) -> None:
        # vLLM reports no waiting requests while it is paused, although they wait.
        self.stats.running = len(self._running)
        self.stats.waiting = 0 if self.paused else len(self._waiting)
        self.stats.kv_usage = min(1.0, self._used_blocks / self._settings.num_blocks)
