"""Plays one `Case` on a loopback socket, to any client.

Raw asyncio streams, because the point is to say what no HTTP library would say. Everything
a stage opens is closed when its context ends: listeners, connections, held ports.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

from .script import Address, Case, End, Pause, Reads, Redirect, Send, Step, Steps, always
from .wire import OK, answer

LOOPBACK = "127.0.0.1"
UNKNOWN_HOST = "no-such-host.invalid"
_HEAD_LIMIT = 1 << 20  # bytes of request head that a client may send
_RECEIVE_BUFFER = 64 << 10  # bytes; small, so that an unread upload is really unread


@dataclass
class Stage:
    """What one case shows to the client: the URL to call, and how many requests have come.

    Once `healed`, the server answers every request with 200: a client that returns then was
    still trying. `instead` is played in place of the case from the next request on, and
    `spared` is how many requests a case with `spares_get` has answered nevertheless.
    """

    base_url: str = ""
    requests: int = 0
    healed: bool = False
    instead: Case | None = None
    spared: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self) -> None:
        """One more request has arrived."""
        self.requests += 1
        self._changed.set()

    async def progress(self) -> None:
        """Wait for the next request."""
        self._changed.clear()
        await self._changed.wait()


@asynccontextmanager
async def play(case: Case, *, heal_after_s: float = 1.0) -> AsyncIterator[Stage]:
    """Put `case` at an address of its own until the context ends.

    Nobody's requests to a REFUSED address can be seen, so there the server starts to answer
    after `heal_after_s` seconds, which has to be longer than a bounded client keeps trying.
    """
    stage = Stage()
    async with _OPENERS[case.address](case, stage, heal_after_s):
        yield stage


@asynccontextmanager
async def _scripted(case: Case, stage: Stage, _heal_after_s: float) -> AsyncIterator[None]:
    scheme = "https" if case.address is Address.TLS_TO_PLAIN else "http"
    with _held_port() as dead:
        async with _other_origin(case) as other, _listening(_bound(), case, stage, dead, other) as port:
            stage.base_url = f"{scheme}://{LOOPBACK}:{port}/v1"
            yield


@asynccontextmanager
async def _refused(_case: Case, stage: Stage, heal_after_s: float) -> AsyncIterator[None]:
    held = _bound()
    stage.base_url = f"http://{LOOPBACK}:{held.getsockname()[1]}/v1"

    async def heal() -> None:
        await asyncio.sleep(heal_after_s)
        async with _listening(held, always(OK), stage):
            stage.healed = True
            await asyncio.Event().wait()

    healing = asyncio.create_task(heal())
    try:
        yield
    finally:
        healing.cancel()
        with suppress(asyncio.CancelledError):
            await healing
        held.close()


@asynccontextmanager
async def _unaccepted(_case: Case, stage: Stage, _heal_after_s: float) -> AsyncIterator[None]:
    with _bound() as held:
        held.listen(16)
        stage.base_url = f"http://{LOOPBACK}:{held.getsockname()[1]}/v1"
        yield


@asynccontextmanager
async def _backlog_full(_case: Case, stage: Stage, _heal_after_s: float) -> AsyncIterator[None]:
    with _bound() as held, contextlib.ExitStack() as fillers:
        held.listen(0)
        for _ in range(4):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(held.getsockname())
        stage.base_url = f"http://{LOOPBACK}:{held.getsockname()[1]}/v1"
        yield


@asynccontextmanager
async def _unresolvable(_case: Case, stage: Stage, _heal_after_s: float) -> AsyncIterator[None]:
    stage.base_url = f"http://{UNKNOWN_HOST}:80/v1"
    with _no_such_host(stage):
        yield


def _not_dialled(url: str) -> "Opener":
    @asynccontextmanager
    async def opener(_case: Case, stage: Stage, _heal_after_s: float) -> AsyncIterator[None]:
        stage.base_url = url
        yield

    return opener


Opener = Callable[[Case, Stage, float], AbstractAsyncContextManager[None]]
_OPENERS: dict[Address, Opener] = {
    Address.SCRIPTED: _scripted,
    Address.TLS_TO_PLAIN: _scripted,
    Address.REFUSED: _refused,
    Address.UNACCEPTED: _unaccepted,
    Address.BACKLOG_FULL: _backlog_full,
    Address.UNRESOLVABLE: _unresolvable,
    Address.PORT_TOO_HIGH: _not_dialled(f"http://{LOOPBACK}:99999/v1"),
    Address.NO_SCHEME: _not_dialled(f"{LOOPBACK}:1/v1"),
}


@contextmanager
def _no_such_host(stage: Stage) -> Iterator[None]:
    """Count look-ups of UNKNOWN_HOST and fail them here, whatever this machine's resolver does with it."""
    loop: Any = asyncio.get_running_loop()
    real = loop.getaddrinfo

    async def getaddrinfo(host: str | bytes | None, *args: Any, **kwargs: Any) -> Any:
        if host not in (UNKNOWN_HOST, UNKNOWN_HOST.encode()):
            return await real(host, *args, **kwargs)
        stage.count()
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    loop.getaddrinfo = getaddrinfo
    try:
        yield
    finally:
        del loop.getaddrinfo


def _bound() -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    sock.bind((LOOPBACK, 0))
    return sock


@contextmanager
def _held_port() -> Iterator[int]:
    """A port that is ours and refuses connections."""
    with _bound() as held:
        yield held.getsockname()[1]


@asynccontextmanager
async def _other_origin(case: Case) -> AsyncIterator[int]:
    """A second server that answers 200, for the cases that redirect to it; port 0 for the others."""
    steps = [step for round_ in case.rounds for step in round_]
    if not any(isinstance(step, Redirect) and "{other}" in step.location for step in steps):
        yield 0
        return
    async with _listening(_bound(), always(OK), Stage()) as port:
        yield port


@asynccontextmanager
async def _listening(
    sock: socket.socket, case: Case, stage: Stage, dead: int = 0, other: int = 0
) -> AsyncIterator[int]:
    handlers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        handlers[cast("asyncio.Task[None]", task)] = writer
        # The client leaving ends a connection as well as any script does, and so does the end of the
        # stage; nobody awaits this task, so a cancellation has nowhere to go.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            await _Connection(case, stage, reader, writer, {"dead": dead, "other": other}).run()
        writer.close()

    server = await asyncio.start_server(serve, sock=sock, limit=_HEAD_LIMIT, backlog=1024)
    try:
        yield sock.getsockname()[1]
    finally:
        server.close()
        for task, writer in handlers.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*handlers, return_exceptions=True)
        await server.wait_closed()


@dataclass
class _Connection:
    case: Case
    stage: Stage
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ports: dict[str, int]
    head: bytes = b""

    async def run(self) -> None:
        reads = Reads.WHOLE if self.stage.healed else self.case.reads
        while await self._request(reads):
            number = self.stage.requests
            self.stage.count()
            for step in self._steps(number):
                if not await self._act(step):
                    return
            if reads is not Reads.WHOLE:
                return

    def _steps(self, number: int) -> Steps:
        case = self.stage.instead or self.case
        if case.spares_get and self.head.startswith(b"GET "):
            self.stage.spared += 1
            return (Send(OK),)
        if self.stage.healed:
            return (Send(OK),)
        return case.steps(number)

    async def _request(self, reads: Reads) -> bool:
        """Read as much of a request as the case asks for; False when the client has left."""
        if reads is Reads.NOTHING:
            return True
        try:
            self.head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        if reads is Reads.WHOLE:
            await self.reader.readexactly(_content_length(self.head))
        return True

    async def _act(self, step: Step) -> bool:
        """Do one step; False when it ended the connection."""
        match step:
            case Send(data):
                self.writer.write(data)
                await self.writer.drain()
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Redirect(status, location):
                location = location.format(**self.ports)
                self.writer.write(answer(status, headers=[f"Location: {location}"]))
                await self.writer.drain()
            case End():
                await self._end(step)
                return False
        return True

    async def _end(self, end: End) -> None:
        match end:
            case End.FIN:
                self.writer.close()
            case End.RST:
                raw = self.writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.writer.transport.abort()
            case End.STALL:
                await self.reader.read()  # nothing but the client's own leaving ends this
            case End.LINGER:
                self.writer.write_eof()
                while await self.reader.read(1 << 20):
                    pass


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0
