"""Multi-turn rollouts over HTTP against one URL, in a closed loop, and what the clients saw.

As NeMo-Gym's, they send no session header: turn k's messages are an exact prefix of those of turn k+1. Answers are
streamed, since only then does a client see the first token.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp
import orjson

_WORDS = tuple(f"{first}{second}{third}" for first in "bdfgklmnprst" for second in "aeiou" for third in "dklmnrst")


@dataclass(frozen=True, slots=True)
class HttpWork:
    """A closed loop; words are about a token each, times in seconds. Measured from `warm_up` to `end`."""

    rollouts: int
    group: int
    turns: int
    first_words: int
    tool_words: int
    answer_tokens: int
    away_mean: float
    warm_up: float
    end: float


# Both with KV caches that hold the rollouts of one shard, and not those of all: a policy that spreads turns evicts.
SOCKETS = HttpWork(
    rollouts=24,
    group=4,
    turns=14,
    first_words=300,
    tool_words=120,
    answer_tokens=24,
    away_mean=0.7,
    warm_up=8.0,
    end=32.0,
)
SOCKETS_SHARDS, SOCKETS_ARGS = 4, ("--prefill-us", "500", "--block-size", "16", "--num-blocks", "700")
VLLM = HttpWork(
    rollouts=8,
    group=2,
    turns=14,
    first_words=150,
    tool_words=60,
    answer_tokens=16,
    away_mean=0.05,
    warm_up=8.0,
    end=32.0,
)
VLLM_SHARDS, VLLM_ARGS = 2, ("--block-size", "32", "--num-gpu-blocks-override", "400")


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer; lengths in tokens, times in seconds from the sending."""

    prompt: int
    answer: int
    first_token: float
    e2e: float


@dataclass(slots=True)
class Seen:
    """What the clients of one run saw in its window."""

    answers: list[Answered] = field(default_factory=list)
    failed: int = 0


class Clients:
    """The rollouts of one run; they ask `url` until they are cancelled, and are counted while `counting`."""

    def __init__(self, url: str, model: str, work: HttpWork, seed: int) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._model = model
        self._work = work
        self._seed = seed
        self._begun = 0
        self.counting = False
        self.seen = Seen()

    async def slot(self, session: aiohttp.ClientSession) -> None:
        """One place of the loop: rollouts one after the other, for ever."""
        # The first rollouts are shorter, so that they don't move in step.
        rest = Random(f"slot {self._seed} {self._begun}").random()
        turns = max(1, round(self._work.turns * rest))
        while True:
            await self._rollout(session, self._next(), turns)
            turns = self._work.turns

    def _next(self) -> int:
        self._begun += 1
        return self._begun - 1

    async def _rollout(self, session: aiohttp.ClientSession, number: int, turns: int) -> None:
        work = self._work
        shared, own = Random(f"group {self._seed} {number // work.group}"), Random(f"rollout {self._seed} {number}")
        messages = [{"role": "user", "content": _text(shared, work.first_words)}]
        await asyncio.sleep(own.random() * work.away_mean)
        for _ in range(turns):
            answer = await self._ask(session, messages)
            if answer is None:
                return
            messages.append({"role": "assistant", "content": answer})
            messages.append({"role": "user", "content": _text(own, work.tool_words)})
            await asyncio.sleep(own.expovariate(1 / work.away_mean))

    async def _ask(self, session: aiohttp.ClientSession, messages: list[dict[str, str]]) -> str | None:
        """One turn: the answer's text, None if there was none."""
        stream = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
        body = {"model": self._model, "messages": messages, "max_tokens": self._work.answer_tokens, **stream}
        sent, counted = time.monotonic(), self.counting
        answer = _Answer()
        try:
            async with session.post(self._url, json=body) as response:
                async for line in response.content:
                    answer.take(line, time.monotonic)
        except aiohttp.ClientError:
            answer.usage = {}
        if not answer.usage:
            self.seen.failed += 1
            return None
        if counted and self.counting:
            self.seen.answers.append(answer.timed(sent, time.monotonic()))
        return "".join(answer.texts)


@dataclass(slots=True)
class _Answer:
    texts: list[str] = field(default_factory=list)
    first: float | None = None
    usage: dict[str, Any] = field(default_factory=dict)

    def take(self, line: bytes, now: Callable[[], float]) -> None:
        """One line of the event stream."""
        if not line.startswith(b"data: {"):
            return
        event = orjson.loads(line[6:])
        self.usage = event.get("usage") or self.usage
        for choice in event.get("choices", ()):
            if text := choice["delta"].get("content"):
                self.texts.append(text)
                self.first = self.first or now()

    def timed(self, sent: float, ended: float) -> Answered:
        """Its figures."""
        first = (self.first or ended) - sent
        return Answered(self.usage["prompt_tokens"], self.usage["completion_tokens"], first, ended - sent)


def _text(draws: Random, words: int) -> str:
    return " " + " ".join(draws.choices(_WORDS, k=words))
