"""NeMo-Gym's client loops over connections in memory: `GymLikeClient` with another session underneath.

And without tenacity, whose bookkeeping for a call takes as long as all else that the client does for it.
"""

import asyncio
from collections import deque
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from ..clients.gym_like import (
    LOST_BEFORE_THE_HEAD,
    MAX_TRIES,
    PAUSE_S,
    POOL_IDLE_S,
    RATE_LIMIT_STATUSES,
    RETRIED_STATUSES,
    GymLikeClient,
    drain,
)
from ..http1 import ResponseReader

_ERROR = 400


class VirtualClient(GymLikeClient):
    """The same two loops in plain Python; a test proves them equal."""

    async def _until_final_status(self, url: str, body: bytes) -> aiohttp.ClientResponse:
        tries = 0
        while True:
            response = await self._until_head(url, body)
            if response.status not in RETRIED_STATUSES:
                return response
            await drain(response)
            tries += response.status not in RATE_LIMIT_STATUSES
            await self._sleep(PAUSE_S)
            if tries == MAX_TRIES:
                return response

    async def _until_head(self, url: str, body: bytes) -> aiohttp.ClientResponse:
        tries = 0
        while True:
            try:
                return await self._session.post(url, data=body, headers=self._headers)
            except LOST_BEFORE_THE_HEAD:
                pass
            except Exception:
                tries += 1
                if tries == MAX_TRIES:
                    raise
            await self._sleep(PAUSE_S)


class _Exchange(asyncio.Protocol):
    """One connection, with one request on it at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.idle_since = 0.0
        self.open = True
        self._answer = ResponseReader()
        self._done: asyncio.Future[ResponseReader] | None = None

    async def ask(self, request: bytes) -> ResponseReader:
        """The answer, as far as it came."""
        self._answer = ResponseReader()
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        try:
            return await self._done
        except asyncio.CancelledError:
            self.transport.abort()
            raise

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._answer.feed(data)
        if self._answer.whole or self._answer.bad is not None:
            self._end()

    def eof_received(self) -> bool:
        self.open = False
        self._answer.end()
        self._end()
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self.open = False
        self._end()

    def _end(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(self._answer)


class _Content:
    def __init__(self, answer: ResponseReader) -> None:
        self._answer = answer

    async def read(self) -> bytes:
        if not self._answer.whole:
            raise aiohttp.ClientPayloadError("the body is not whole")
        return self._answer.response().body


class _Answer:
    """What `GymLikeClient` uses of aiohttp's response."""

    def __init__(self, url: str, status: int, answer: ResponseReader) -> None:
        self._url = url
        self.status = status
        self.ok = status < _ERROR
        self.content = _Content(answer)
        self.read = self.content.read

    def raise_for_status(self) -> None:
        raise _error(self._url, self.status, "")

    def close(self) -> None:
        """The connection is not kept."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class VirtualSession:
    """What `GymLikeClient` uses of aiohttp's session, with its pool and its errors."""

    def __init__(self) -> None:
        self._idle: deque[_Exchange] = deque()

    async def post(self, url: str, data: bytes, headers: dict[str, str]) -> _Answer:
        """Send, and wait until the answer has come whole or has failed."""
        loop = asyncio.get_running_loop()
        parts = urlsplit(url)
        connection = self._reusable(loop.time())
        if connection is None:
            try:
                _, connection = await loop.create_connection(_Exchange, parts.hostname or "", parts.port or 0)
            except OSError as error:
                raise aiohttp.ClientOSError(str(error)) from error
        lines = [f"POST {parts.path} HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        answer = await connection.ask("\r\n".join([*lines, "", ""]).encode() + data)
        if answer.head is None or answer.bad is not None:
            connection.transport.close()
            raise _error(url, 400, answer.bad.why) if answer.bad else aiohttp.ServerDisconnectedError
        if connection.open and answer.whole:
            connection.idle_since = loop.time()
            self._idle.append(connection)
        return _Answer(url, answer.head.status, answer)

    def _reusable(self, now: float) -> _Exchange | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.open and now - connection.idle_since < POOL_IDLE_S:
                return connection
            connection.transport.close()
        return None


def _error(url: str, status: int, why: str) -> aiohttp.ClientResponseError:
    info = aiohttp.RequestInfo(URL(url), "POST", CIMultiDictProxy(CIMultiDict()), URL(url))
    return aiohttp.ClientResponseError(info, (), status=status, message=why)
