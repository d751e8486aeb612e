"""A client that keeps a contract's bounded retries and stops where the real client would go on without end.

A real client may be led on for ever by one bad answer, and a run against a bad router would last as long. This one
asks as often as the contract's table says, with its pauses, and raises `EndlessCallError` instead of what has no end.
It asks for generations only: not every router has `/tokenize`, and a request on another path may be the one that finds
a fault out, so that chance would decide what the generations meet.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from gymproof.validators import Behaviour, Contract, Handling, load_contract

from .base import ClientOptions
from .gym_like import open_session
from .rollouts import UnusableAnswerError

_OK, _REDIRECTS, _BAD_REQUEST = 200, 300, 400
_SHOWN = 200  # bytes of an answer in an error

# The contract's row for each way in which an exchange may break off, the first that is of its kind.
_BREAKS: tuple[tuple[type[Exception], str], ...] = (
    (aiohttp.ClientConnectorError, "connection_refused"),
    (aiohttp.ServerDisconnectedError, "fin_after_request"),
    (aiohttp.ClientPayloadError, "fin_in_body_200"),
    (aiohttp.ClientResponseError, "garbage_then_fin"),  # the parser's verdict: statuses raise nothing here
    (OSError, "rst_after_request"),
)
_UNKNOWN_BREAK = Behaviour(Handling.RAISED, 1)

Sleep = Callable[[float], Awaitable[None]]


class GaveUpError(Exception):
    """The client has done what its contract allows it, and came to an end."""


class EndlessCallError(Exception):
    """The real client would not have come to an end here."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """What one try brought, and what the contract has the client make of it."""

    behaviour: Behaviour
    said: str
    payload: bytes | None = None  # of a success


class BoundedClient:
    """`GymClient` by a contract. One try is cut off after `answer_within_s` seconds."""

    def __init__(
        self,
        base_url: str,
        session: aiohttp.ClientSession,
        contract: Contract,
        *,
        answer_within_s: float | None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._base_url = base_url
        self._session = session
        self._contract = contract
        self._within_s = answer_within_s
        self._sleep = sleep

    async def chat(self, **body: Any) -> Any:
        """See `GymClient.chat`. Logprobs are left out: whether they survive is asked elsewhere."""
        answer = await self._call(f"{self._base_url}/chat/completions", body)
        if isinstance(answer, dict) and isinstance(answer.get("choices"), list):
            choices = (choice for choice in answer["choices"] if isinstance(choice, dict))
            return answer | {"choices": [choice | {"logprobs": {"content": []}} for choice in choices]}
        return answer

    async def tokenize(self, **body: Any) -> Any:  # noqa: ARG002 - the protocol has it
        """See `GymClient.tokenize`. Nothing is asked."""
        return {"tokens": []}

    async def _call(self, url: str, body: dict[str, Any]) -> Any:
        data, tries = orjson.dumps(body), 0
        while True:
            heard = await self._try(url, data)
            tries += 1
            if heard.payload is not None:
                return _decoded(heard.payload)
            if not again(heard.behaviour, tries, heard.said):
                raise GaveUpError(f"{heard.said}, after {tries} tries")
            await self._sleep(pause(self._contract, tries))

    async def _try(self, url: str, data: bytes) -> _Heard:
        try:
            async with (
                asyncio.timeout(self._within_s),
                self._session.post(
                    url, data=data, headers={"Content-Type": "application/json"}, allow_redirects=False
                ) as answer,
            ):
                payload = await answer.read()
        except TimeoutError:
            raise EndlessCallError(f"no answer within {self._within_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            row = next((row for kind, row in _BREAKS if isinstance(error, kind)), "")
            behaviour = self._contract.faults.get(row, _UNKNOWN_BREAK)
            return _Heard(behaviour, f"{type(error).__name__}: {error}"[:_SHOWN])
        status = answer.status
        if _REDIRECTS <= status < _BAD_REQUEST:
            raise EndlessCallError(f"{status}: the client would follow it past the router")
        behaviour = self._contract.statuses.get(status, _UNKNOWN_BREAK)
        return _Heard(behaviour, str(status), payload if _OK <= status < _REDIRECTS else None)


def again(behaviour: Behaviour, tries: int, said: str) -> bool:
    """Whether the client asks once more, having asked `tries` times. Raises EndlessCallError if that has no end."""
    if behaviour.handling is Handling.UNBOUNDED:
        raise EndlessCallError(f"{said}: the client would retry this without end")
    if behaviour.handling is Handling.HANGS:
        raise EndlessCallError(f"{said}: the client would wait without end")
    return tries < (behaviour.tries or 0)


def pause(contract: Contract, tries: int) -> float:
    """Seconds between try number `tries` and the next one, the first being number 1."""
    pauses = contract.timing.pauses_s or (0.0,)
    return pauses[min(tries, len(pauses)) - 1]


def _decoded(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise UnusableAnswerError(f"no JSON came as a success: {payload[:_SHOWN]!r}") from error


def bounded(client: str) -> Callable[[ClientOptions], Any]:
    """How to open one that keeps the contract of `client`."""

    @asynccontextmanager
    async def open_bounded(options: ClientOptions) -> AsyncIterator[BoundedClient]:
        async with open_session() as session:
            yield BoundedClient(
                options.base_url, session, load_contract(client), answer_within_s=options.answer_within_s
            )

    return open_bounded
