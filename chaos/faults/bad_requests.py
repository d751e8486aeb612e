"""Clients that ask for what no shard can give: the 4xx is an answer, and no shard may be ejected for it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from pydantic import Field

from ..asking import MODEL, ask, chat_body, dial, post
from ..http1 import ResponseReader
from .base import Layer, RouterFault, RouterHandle, Symptom

_ANSWER_WITHIN_S = 30.0


class BadRequests(RouterFault):
    """`count` requests, in turn with a prompt that is too long, a model that is not served, and half a JSON document.

    The calls are named bad-request.0, bad-request.1, ...
    """

    layer: ClassVar[Layer] = Layer.CLIENT
    count: int = Field(default=30, ge=1, description="requests")
    words: int = Field(default=20_000, ge=1, description="length of a prompt that is too long")

    def symptoms(self) -> frozenset[Symptom]:
        """The shards are well."""
        return frozenset({Symptom.OK})

    async def strike(self, router: RouterHandle, entry_url: str) -> str:  # noqa: ARG002 - clients need only the URL
        """Ask, all at once, and count the answers. Raises RuntimeError if none of them is a 4xx."""
        makers: tuple[Callable[[str], bytes], ...] = (self._too_long, self._unknown_model, self._half_json)
        bodies = (makers[number % len(makers)](f"bad-request.{number}") for number in range(self.count))
        answers = Counter(await asyncio.gather(*(_ask(entry_url, body) for body in bodies)))
        seen = ", ".join(f"{times} x {answer}" for answer, times in sorted(answers.items()))
        if not any(answer.startswith("4") for answer in answers):
            raise RuntimeError(f"no bad request was answered with a 4xx: {seen}")
        return seen

    def _too_long(self, call: str) -> bytes:
        return chat_body(call, "word " * self.words, model=MODEL)

    def _unknown_model(self, call: str) -> bytes:
        return chat_body(call, model="no-such-model")

    def _half_json(self, call: str) -> bytes:
        return chat_body(call, model=MODEL)[:-2]


async def _ask(entry_url: str, body: bytes) -> str:
    """The status of the answer, or that there was none."""
    answer = ResponseReader()
    try:
        async with asyncio.timeout(_ANSWER_WITHIN_S), dial(entry_url) as streams:
            await ask(streams, post(entry_url, body), answer)
    except OSError:
        return "no answer"
    return str(answer.response().status) if answer.whole else "no answer"
