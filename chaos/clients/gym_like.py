"""NeMo-Gym's client loops on tenacity, for machines without `nemo-gym`.

Two loops, one inside the other, and each keeps its own count, since that decides the mixed cases. The inner one sends
until a response head is in: a connection that fails before that is tried without end, everything else (answers that
the parser rejects, for the most part) three times for each turn of the outer loop. The outer one asks again on
statuses: 500 three times, the rate-limit ones without end. Nothing has a timeout, and nothing that fails behind the
head is tried again. A test proves it equal to the real client, case by case.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, retry_if_result, wait_fixed

from .base import ClientOptions

RATE_LIMIT_STATUSES = frozenset({429, 502, 503, 504, 520})  # each answer of these raises the limit by one
RETRIED_STATUSES = RATE_LIMIT_STATUSES | {500}
MAX_TRIES = 3
PAUSE_S = 0.5
POOL_IDLE_S = 15.0
LOST_BEFORE_THE_HEAD = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)

Sleep = Callable[[float], Awaitable[None]]


class GymLikeClient:
    """`GymClient` with NeMo-Gym 0.4.0's behaviour. Raises aiohttp's and orjson's errors, as the real one does."""

    def __init__(
        self, base_url: str, session: aiohttp.ClientSession, *, api_key: str = "gymproof", sleep: Sleep = asyncio.sleep
    ) -> None:
        self._base_url = base_url
        self._session = session
        self._headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        self._sleep = sleep

    async def chat(self, **body: Any) -> Any:
        """See `GymClient.chat`."""
        return await self._call(f"{self._base_url}/chat/completions", body)

    async def tokenize(self, **body: Any) -> Any:
        """See `GymClient.tokenize`."""
        return await self._call(f"{self._base_url.removesuffix('/v1')}/tokenize", body)

    async def _call(self, url: str, body: dict[str, Any]) -> Any:
        async with await self._until_final_status(url, orjson.dumps(body)) as response:
            await _raise_for_status(response)
            return orjson.loads(await response.read())

    async def _until_final_status(self, url: str, body: bytes) -> aiohttp.ClientResponse:
        async def ask() -> aiohttp.ClientResponse:
            response = await self._until_head(url, body)
            if response.status in RETRIED_STATUSES:
                await drain(response)
            return response

        async def give_up(state: RetryCallState) -> aiohttp.ClientResponse:
            await self._sleep(PAUSE_S)  # Gym sleeps after its last try too
            return _result(state)

        retrying = AsyncRetrying(
            retry=retry_if_result(lambda response: response.status in RETRIED_STATUSES),
            stop=_GiveUpAfter(MAX_TRIES, counts=lambda state: _result(state).status not in RATE_LIMIT_STATUSES),
            wait=wait_fixed(PAUSE_S),
            sleep=self._sleep,
            retry_error_callback=give_up,
        )
        return await retrying(ask)

    async def _until_head(self, url: str, body: bytes) -> aiohttp.ClientResponse:
        async def send() -> aiohttp.ClientResponse:
            return await self._session.post(url, data=body, headers=self._headers)

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Exception),
            stop=_GiveUpAfter(MAX_TRIES, counts=lambda state: not isinstance(_error(state), LOST_BEFORE_THE_HEAD)),
            wait=wait_fixed(PAUSE_S),
            sleep=self._sleep,
            reraise=True,
        )
        return await retrying(send)


class _GiveUpAfter:
    """Stops at the `tries`-th outcome that counts; the others are retried without end. Good for one call."""

    def __init__(self, tries: int, counts: Callable[[RetryCallState], bool]) -> None:
        self._left = tries
        self._counts = counts

    def __call__(self, state: RetryCallState) -> bool:
        self._left -= self._counts(state)
        return self._left <= 0


@asynccontextmanager
async def open_session() -> AsyncIterator[aiohttp.ClientSession]:
    """The real client's pool: 15 s of idle time, no timeout of any kind, cookies never sent back."""
    connector = aiohttp.TCPConnector(limit=100 * 1024, limit_per_host=1024, keepalive_timeout=POOL_IDLE_S)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(), cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        yield session


@asynccontextmanager
async def open_gym_like(options: ClientOptions) -> AsyncIterator[GymLikeClient]:
    """A client with a pool of its own, closed at the end."""
    async with open_session() as session:
        yield GymLikeClient(options.base_url, session)


async def drain(response: aiohttp.ClientResponse) -> None:
    """Read the text that Gym prints. A body that is cut or is no UTF-8 raises here, even on a 503."""
    try:
        (await response.content.read()).decode()
    except BaseException:
        response.close()
        raise


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    if response.ok:
        return
    text = await response.content.read()  # empty when the retry loop has read it already
    try:
        response.raise_for_status()
    except aiohttp.ClientResponseError as error:
        error.response_content = text  # type: ignore[attr-defined]  # where Gym's callers look for the answer's text
        raise


def _result(state: RetryCallState) -> aiohttp.ClientResponse:
    if state.outcome is None:
        raise RuntimeError("asked for the outcome of a try that has not ended")
    response: aiohttp.ClientResponse = state.outcome.result()
    return response


def _error(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None
