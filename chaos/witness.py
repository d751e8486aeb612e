"""A witness asks a shard, past the router, and says what it saw, before anybody judges the router by a fault.

A fault that did not act proves nothing, and one may act on new connections and not on pooled ones.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import orjson

from .asking import Streams, ask, chat_body, dial, post
from .clients.rollouts import FINISH_REASONS
from .faults.base import Fault, Symptom
from .http1 import ResponseReader

CALL = "witness"
_BASELINE_WITHIN_S = 10.0
BASELINE_ASKS = 3
_ENDS = {"fin": Symptom.CLOSED, "rst": Symptom.RESET, "silence": Symptom.SILENT}
_BODY = chat_body(CALL, "Well?", max_tokens=1)


class WitnessError(Exception):
    """A shard's route did not answer rightly before the fault, so nothing can be said about the fault."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What one question showed; `seconds` is None where no whole answer came."""

    symptom: Symptom
    seconds: float | None = None


async def observe(url: str, *, patience_s: float, pooled: Streams | None = None) -> Sight:
    """Ask for one token, on `pooled` or else on a new connection, and see what happens within `patience_s` seconds.

    A new connection is closed afterwards.
    """
    began = time.monotonic()
    answer, how = ResponseReader(), "fin"
    try:
        async with asyncio.timeout(patience_s), nullcontext(pooled) if pooled else dial(url) as streams:
            await ask(streams, post(url, _BODY), answer)
    except ConnectionRefusedError:
        return Sight(Symptom.REFUSED)
    except ConnectionError:
        how = "rst"
    except TimeoutError:
        how = "silence"
    return Sight(classify(answer, how), time.monotonic() - began if answer.whole else None)


def classify(answer: ResponseReader, how: str) -> Symptom:
    """Name what came; `how` the reading ended if no whole answer did: "fin", "rst" or "silence"."""
    if answer.bad is not None:
        return Symptom.BAD_HTTP
    if not answer.whole:
        return Symptom.TRUNCATED if answer.head is not None and how != "silence" else _ENDS[how]
    response = answer.response()
    if response.status != 200:  # noqa: PLR2004
        return Symptom.STATUS
    return Symptom.OK if _usable(response.body) else Symptom.WRONG


def matches(fault: Fault, new: Symptom, pooled: Symptom) -> bool:
    """Whether both connections showed what this fault does. Where all should be well, load may make it late."""
    return _shows(fault.symptoms(), new) and _shows(fault.pooled_symptoms(), pooled)


def _shows(expected: frozenset[Symptom], seen: Symptom) -> bool:
    return seen in expected or (seen is Symptom.SLOW and Symptom.OK in expected)


class Witness:
    """Watches the routes of the shards that a fault is about to strike.

    Entering it asks each route on a connection that it keeps: the fault finds a pooled connection that works, and a
    slow answer is known from a usual one. Enter it right before the fault, since shards close what is idle for 5 s.
    Raises WitnessError if a route does not answer rightly. An answer that takes `slow_by_s` seconds longer than the
    quickest one before the fault is slow; one that takes over `patience_s` seconds has not come.
    """

    def __init__(
        self, urls: Sequence[str], *, patience_s: float = 1.5, slow_by_s: float = 0.1, asks: int = BASELINE_ASKS
    ) -> None:
        self._asks = asks
        self._urls = urls
        self._patience_s = patience_s
        self._slow_by_s = slow_by_s
        self._stack = AsyncExitStack()
        self._kept: dict[str, Streams] = {}
        self._usual_s: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        try:
            await asyncio.gather(*(self._prepare(url) for url in self._urls))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def sees(self, fault: Fault) -> tuple[bool, str]:
        """Whether the fault acts on every route, on a new and on the kept connection, and what was seen, in a line."""
        sights = await asyncio.gather(*(self.look(url) for url in self._urls))
        acts = all(matches(fault, new, pooled) for new, pooled in sights)
        return acts, "; ".join(
            f"{url}: new {new}, pooled {pooled}" for url, (new, pooled) in zip(self._urls, sights, strict=True)
        )

    async def refresh(self) -> None:
        """Ask on the kept connections again, so that they are not idle for too long. Raises WitnessError."""
        await asyncio.gather(*(self._ask(url) for url in self._urls))

    async def look(self, url: str) -> tuple[Symptom, Symptom]:
        """What a new connection and the kept one show."""
        pooled = self._kept[url]
        sights = await asyncio.gather(
            observe(url, patience_s=self._patience_s), observe(url, patience_s=self._patience_s, pooled=pooled)
        )
        new, kept = (self._timed(url, sight) for sight in sights)
        return new, kept

    async def _prepare(self, url: str) -> None:
        try:
            self._kept[url] = await self._stack.enter_async_context(dial(url))
        except OSError as error:
            raise WitnessError(f"{url} cannot be connected to before the fault: {error}") from error
        self._usual_s[url] = _BASELINE_WITHIN_S
        for _ in range(self._asks):
            await self._ask(url)

    async def _ask(self, url: str) -> None:
        sight = await observe(url, patience_s=_BASELINE_WITHIN_S, pooled=self._kept[url])
        if sight.symptom is not Symptom.OK or sight.seconds is None:
            raise WitnessError(f"{url} shows {sight.symptom} before the fault")
        self._usual_s[url] = min(self._usual_s[url], sight.seconds)

    def _timed(self, url: str, sight: Sight) -> Symptom:
        slow = sight.seconds is not None and sight.seconds > self._usual_s[url] + self._slow_by_s
        return Symptom.SLOW if slow and sight.symptom is Symptom.OK else sight.symptom


def _usable(body: bytes) -> bool:
    """Whether this is a chat completion that a client may use."""
    with suppress(orjson.JSONDecodeError, LookupError, TypeError):
        choice: Any = orjson.loads(body)["choices"][0]
        return "message" in choice and choice["finish_reason"] in FINISH_REASONS
    return False
