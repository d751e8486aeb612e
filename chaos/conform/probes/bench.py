"""Where a router is probed: the router in front of recording shards, and raw questions to it."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from gymproof.validators import Contract, Handling, load_contract

from ...asking import MODEL, Streams, ask, chat_body, dial, post
from ...choices import contract_client
from ...guard import Guard
from ...history import Ending
from ...http1 import Headers, ResponseReader
from ...under_test import RouterError, RouterUnderTest, Wiring
from .backends import Backend, Delivery, Respond, listening

BACK_WITHIN_S = 10.0  # from when a shard is there until it has requests
_BACK_EVERY_S = 0.25
_POLL_S = 0.05
_SERVES_WITHIN_S = 10.0
_ATTEMPTS = 2
_REDIRECTS = range(300, 400)


@dataclass(frozen=True)
class Reply:
    """What came back to one request; `ending` is PENDING where nothing whole came in time."""

    ending: Ending
    seconds: float
    status: int | None = None
    headers: Headers = ()
    body: bytes = b""
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is a whole 200."""
        return self.ending is Ending.COMPLETE and self.status == 200  # noqa: PLR2004

    @cached_property
    def content(self) -> str:
        """What a chat completion says, "" for anything else."""
        try:
            return str(orjson.loads(self.body)["choices"][0]["message"]["content"])
        except (orjson.JSONDecodeError, LookupError, TypeError):
            return ""

    def __str__(self) -> str:
        status = "" if self.status is None else f" {self.status}"
        said = f": {self.body[:160]!r}" if self.body and not self.ok else ""
        return f"{self.ending}{status} after {self.seconds:.2f} s{self.detail and f' ({self.detail})'}{said}"


async def call(url: str, request: bytes, *, within_s: float) -> Reply:
    """Send one request on a connection of its own. Never raises for what the peer does."""
    return await converse(url, lambda streams, answer: ask(streams, request, answer), within_s=within_s)


async def converse(url: str, talk: Callable[[Streams, ResponseReader], Awaitable[None]], *, within_s: float) -> Reply:
    """Like `call`, with a request that `talk` sends in its own way; what comes back it reads into the answer."""
    answer, began = ResponseReader(), time.monotonic()
    try:
        async with asyncio.timeout(within_s), dial(url) as streams:
            await talk(streams, answer)
    except ConnectionRefusedError:
        return Reply(Ending.REFUSED, time.monotonic() - began)
    except TimeoutError:
        return Reply(Ending.PENDING, time.monotonic() - began, _status(answer))
    except OSError as error:
        return _read(answer, time.monotonic() - began, error.strerror or str(error))
    return _read(answer, time.monotonic() - began)


def _read(answer: ResponseReader, seconds: float, detail: str = "") -> Reply:
    """What a reader has taken in, its connection ended or its answer whole."""
    status = _status(answer)
    if answer.bad is not None:
        return Reply(Ending.BAD_HTTP, seconds, status, detail=answer.bad.why)
    if not answer.whole:
        return Reply(Ending.NO_ANSWER if status is None else Ending.TRUNCATED, seconds, status, detail=detail)
    response = answer.response()
    return Reply(Ending.COMPLETE, seconds, response.status, response.headers, response.body)


def tally(replies: Iterable[Reply]) -> str:
    """How some requests ended, as in "200 x18, truncated x2"; a status stands for a whole answer."""
    ends = (str(reply.status) if reply.ending is Ending.COMPLETE else str(reply.ending) for reply in replies)
    return ", ".join(f"{end} x{count}" for end, count in Counter(ends).most_common())


def _status(answer: ResponseReader) -> int | None:
    return answer.head.status if answer.head else None


_FLAWS = {
    Ending.TRUNCATED: "an answer cut in the middle: one try, and the rollout is lost",
    Ending.NO_ANSWER: "the connection closed without an answer",
    Ending.REFUSED: "the connection refused",
    Ending.BAD_HTTP: "bytes that the client's parser rejects",
    Ending.PENDING: "no whole answer in time",
}


def flaw(contract: Contract, reply: Reply) -> str:
    """What makes an answer one that a client must never get; "" for one whose handling has an end."""
    if reply.ending in _FLAWS:
        return _FLAWS[reply.ending]
    behaviour = contract.statuses.get(reply.status or 0)
    if behaviour is None:
        return f"{reply.status}, which is no status of HTTP"
    if behaviour.handling is Handling.UNBOUNDED:
        return f"{reply.status}, which {contract.client} retries without bound"
    if reply.status in _REDIRECTS:
        return f"{reply.status}, which leads the client past the router"
    return ""


async def until_used(ask: Callable[[int], Awaitable[bool]]) -> float | None:
    """Seconds until `ask`, told the number of the round, finds the shard in use; None if it does not in time."""
    began, number = time.monotonic(), 0
    while time.monotonic() - began < BACK_WITHIN_S:
        if await ask(number):
            return time.monotonic() - began
        number += 1
        await asyncio.sleep(_BACK_EVERY_S)
    return None


@dataclass
class Rig:
    """A running router and the recording shards behind it, which all answer by `scripts`."""

    router: RouterUnderTest
    backends: Sequence[Backend]
    scripts: dict[str, Respond]
    bench: "Bench"
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def name(self, what: str) -> str:
        """A new name for a call."""
        return f"{what}.{next(self._numbers)}"

    async def ask(self, request: bytes) -> Reply:
        """Send one request to the router."""
        return await call(self.router.url, request, within_s=self.bench.patience_s)

    async def chat(self, name: str, text: str = "", headers: Headers = ()) -> Reply:
        """Ask for a chat completion."""
        return await self.ask(with_headers(post(self.router.url, chat(name, text)), headers))

    def flaw(self, reply: Reply) -> str:
        """See `flaw`."""
        return flaw(self.bench.contract, reply)

    def delivered(self, name: str) -> list[Delivery]:
        """What reached the shards of a call, in order of time."""
        every = (delivery for backend in self.backends for delivery in backend.deliveries)
        return sorted((one for one in every if one.call == name), key=lambda one: one.begun)


@dataclass(frozen=True)
class Bench:
    """All that the probes are told about the router that they judge, and where records go.

    `session_header` is the one by which it keeps a session on a shard, "" if there is none; `affinity_command` starts
    it so that it does, where `command` does not.
    """

    command: str
    folder: Path
    guard: Guard
    session_header: str = ""
    affinity_command: str = ""
    client: str = "nemo-gym"
    deadline_s: float = 10.0
    grace_s: float = 5.0
    start_within_s: float = 60.0

    @cached_property
    def contract(self) -> Contract:
        """Of the client that the router serves."""
        return load_contract(contract_client(self.client))

    @property
    def patience_s(self) -> float:
        """How long a client waits: the deadline that the router is given, and grace."""
        return self.deadline_s + self.grace_s

    def flaws(self, replies: Iterable[Reply]) -> list[str]:
        """See `flaw`; of those that have one."""
        return [found for reply in replies if (found := flaw(self.contract, reply))]

    def router(
        self, name: str, urls: Sequence[str], *, deadline_s: float | None = None, start_within_s: float | None = None
    ) -> RouterUnderTest:
        """The router in front of these shards, to be entered; its log and files are in folder `name`."""
        client = contract_client(self.client)
        wiring = Wiring(urls, deadline_s or self.deadline_s, _ATTEMPTS, self.records(name), client=client)
        return RouterUnderTest(self.command, wiring, self.guard, start_within_s=start_within_s or self.start_within_s)

    def records(self, name: str) -> Path:
        """The folder of that name for what a router and its shards write."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    async def ask_as(self, url: str, name: str, text: str = "") -> Reply:
        """One chat request to a router of its own, of a session of its own."""
        request = with_headers(post(url, chat(name, text)), self.session(name))
        return await call(url, request, within_s=self.patience_s)

    def session(self, key: str) -> Headers:
        """The header by which the router knows a session, if it has one."""
        return ((self.session_header.encode(), key.encode()),) if self.session_header else ()

    @asynccontextmanager
    async def rig(self, name: str, shards: int = 2) -> AsyncIterator[Rig]:
        """A router that serves, in front of recording shards that are well. Raises RouterError."""
        scripts: dict[str, Respond] = {}
        async with (
            listening(shards, scripts) as backends,
            self.router(name, [backend.url for backend in backends]) as router,
        ):
            await self.until_serving(router.url)
            yield Rig(router, backends, scripts, self)

    async def until_serving(self, url: str, within_s: float | None = None) -> None:
        """Wait until a chat request is answered: some answer HTTP before they know their shards. Raises RouterError."""
        give_up = time.monotonic() + (within_s or self.start_within_s)
        request = post(url, chat("ready"))
        while not (reply := await call(url, request, within_s=self.deadline_s)).ok:
            if time.monotonic() > give_up:
                raise RouterError(f"all shards are well, and the router does not serve: {reply}")
            await asyncio.sleep(_POLL_S)


class SharedRig:
    """One rig for all groups that leave a router as they found it, started when the first needs it."""

    def __init__(self, bench: Bench, name: str) -> None:
        self._bench = bench
        self._name = name
        self._stack = AsyncExitStack()
        self._rig: Rig | None = None

    async def rig(self) -> Rig:
        """The rig, its router serving: one that does not any more is started again. Raises RouterError."""
        if self._rig is None:
            self._rig = await self._stack.enter_async_context(self._bench.rig(self._name))
        try:
            await self._bench.until_serving(self._rig.router.url, _SERVES_WITHIN_S)
        except RouterError:
            await self._rig.router.stop()
            await self._rig.router.start()
            await self._bench.until_serving(self._rig.router.url)
        return self._rig

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()


def chat(name: str, text: str = "") -> bytes:
    """A chat request that every router takes."""
    return chat_body(name, text, model=MODEL, max_tokens=16)


def with_headers(request: bytes, headers: Headers) -> bytes:
    """The request with more header lines."""
    head, _, body = request.partition(b"\r\n\r\n")
    return b"\r\n".join([head, *(b"%b: %b" % line for line in headers)]) + b"\r\n\r\n" + body


def bare(method: str, url: str, path: str, headers: Headers = ()) -> bytes:
    """A request without a body."""
    return with_headers(f"{method} {path} HTTP/1.1\r\nHost: {url.removeprefix('http://')}\r\n\r\n".encode(), headers)
