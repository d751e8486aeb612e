"""The API server's view of its engine: requests go in, tokens come out, and it may die."""

import asyncio
import itertools
import os
import signal
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any

import orjson

from .requests import Generation
from .scheduler import Stats

Chunk = tuple[list[int], str | None]


class EngineDeadError(Exception):
    """The engine process has ended."""


class EngineClient(asyncio.Protocol):
    """One socket to the engine. `notice_s` after its end everybody who waits gets EngineDeadError."""

    transport: asyncio.Transport

    def __init__(self, pid: int, *, notice_s: float, on_death: Callable[[bool], None]) -> None:
        self._pid = pid
        self._notice_s = notice_s
        self._unseen = False
        self._on_death = on_death
        self._ids = itertools.count(1)
        self._outputs: dict[int, asyncio.Queue[Chunk | None]] = {}
        self._replies: dict[int, asyncio.Future[bool]] = {}
        self._buffer = b""
        self.stats: dict[str, Any] = Stats().snapshot()
        self.dead = False
        self.ready = asyncio.Event()
        self.idle = asyncio.Event()  # no generation is in flight
        self.idle.set()

    async def connect(self, engine: socket.socket) -> None:
        """Take over the socket and wait until the engine has come up."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=engine)
        await self.ready.wait()

    @property
    def in_flight(self) -> int:
        """Generations that have not ended."""
        return len(self._outputs)

    async def generate(self, asked: Generation) -> AsyncGenerator[Chunk, None]:
        """New tokens as they come (all in one, unless streamed) and, with the last, the finish reason.

        Raises EngineDeadError when the engine dies under it; of a dead one nothing may be asked.
        """
        request = next(self._ids)
        outputs = self._outputs[request] = asyncio.Queue()
        self.idle.clear()
        self._send(
            {
                "do": "add",
                "request": request,
                "prompt": asked.prompt,
                "max_tokens": asked.max_tokens,
                "ignore_eos": asked.ignore_eos,
                "stream": asked.stream,
            }
        )
        finish = None
        try:
            while finish is None:
                chunk = await outputs.get()
                if chunk is None:
                    raise EngineDeadError
                finish = chunk[1]
                yield chunk
        finally:
            del self._outputs[request]
            if not self._outputs:
                self.idle.set()
            if finish is None:
                self._send({"do": "drop", "request": request})

    async def ask(self, do: str, **arguments: str) -> bool:
        """Pause, resume or ask; whether the engine is paused. Hangs as long as the engine does not answer."""
        if self.dead:
            raise EngineDeadError
        number = next(self._ids)
        reply: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        self._send({"do": do, "id": number, **arguments})
        try:
            return await reply
        finally:
            del self._replies[number]

    def kill(self, *, unseen: bool) -> None:
        """End the engine; if that is to be unseen, whoever waits for it waits on."""
        self._unseen = unseen
        os.kill(self._pid, signal.SIGKILL)

    def abort_all(self) -> None:
        """Have everything in flight end now, with what it has."""
        self._send({"do": "abort_all"})

    def _send(self, command: dict[str, Any]) -> None:
        if not self.transport.is_closing():
            self.transport.write(orjson.dumps(command) + b"\n")

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ours."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker: a stream socket's transport
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand out what the engine reports."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._take(orjson.loads(line))

    def connection_lost(self, _error: Exception | None) -> None:
        """The engine has ended; vLLM takes a moment to notice."""
        if not self._unseen:
            asyncio.get_running_loop().call_later(self._notice_s, self._die)

    def _take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "ready":
                self.ready.set()
            case "step":
                self.stats = event["stats"]
                for request, tokens, finish in event["outputs"]:
                    if outputs := self._outputs.get(request):
                        outputs.put_nowait((tokens, finish))
            case "reply":
                reply = self._replies.get(event["id"])
                if reply is not None and not reply.done():  # whoever asked may just have left
                    reply.set_result(event["paused"])

    def _die(self) -> None:
        self.dead = True
        self.ready.set()
        self._on_death(bool(self._outputs))
        for outputs in self._outputs.values():
            outputs.put_nowait(None)
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(EngineDeadError())
