"""`vllm serve --middleware gymproof_middleware.RecordPosts`: the shard's log, written inside a real API server.

GYMPROOF_SHARD_LOG names the file. The log's own code is found beside this file, since gymproof need not be installed
where vLLM is.
"""

import hashlib
import importlib
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

_CHAOS = ModuleType("gymproof_chaos")  # the folder as a package, so that what is imported from it may import more
_CHAOS.__path__ = [str(Path(__file__).resolve().parents[2])]
sys.modules[_CHAOS.__name__] = _CHAOS
ShardLog: Any = importlib.import_module("gymproof_chaos.shard_log").ShardLog

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class RecordPosts:
    """ASGI middleware: every POST is logged when its body is whole, and once more when it ends."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._log = ShardLog(Path(os.environ["GYMPROOF_SHARD_LOG"]))

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one connection or request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        messages = await _whole_body(receive)
        body = b"".join(message.get("body", b"") for message in messages)
        if messages[-1]["type"] == "http.disconnect":
            return  # nobody waits for an answer to half a request
        exchange = _Exchange(self._log, self._log.request(scope["path"], body), messages, receive, send)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        finally:
            exchange.end()


async def _whole_body(receive: Receive) -> list[Message]:
    """The messages up to the end of the body, or of the connection."""
    messages = [await receive()]
    while messages[-1].get("more_body"):
        messages.append(await receive())
    return messages


class _Exchange:
    """One request between the server and the application, seen from the middle."""

    def __init__(self, log: Any, number: str, messages: list[Message], receive: Receive, send: Send) -> None:
        self._log = log
        self._number = number
        self._messages = messages
        self._receive = receive
        self._send = send
        self._status = 0
        self._size = 0
        self._sha256 = hashlib.sha256()
        self._ended = False

    async def receive(self) -> Message:
        """Hand on the body that was read already, then whatever comes."""
        if self._messages:
            return self._messages.pop(0)
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self._ended:
            self._ended = True
            self._log.disconnect(self._number)
        return message

    async def send(self, message: Message) -> None:
        """Hand on the answer, and log it before its last bytes."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif message["type"] == "http.response.body":
            self._sha256.update(message.get("body", b""))
            self._size += len(message.get("body", b""))
            if not message.get("more_body") and not self._ended:
                self._ended = True
                self._log.response(self._number, self._status, self._sha256.hexdigest(), self._size)
        await self._send(message)

    def end(self) -> None:
        """The application is done. If it gave no answer it raised, and the server outside of us answers 500."""
        if not self._ended:
            self._log.response(self._number, self._status or 500, "", self._size)
