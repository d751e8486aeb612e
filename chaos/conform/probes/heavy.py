"""A shard in a process of its own, for loads under which a judge's own event loop would be what is slow.

It does what a message says: `[wait=SECONDS]`, `[size=BYTES]` of content; else its content is a digest of the message.
"""

import argparse
import asyncio
import hashlib
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from ...asking import CHAT_PATH
from ...guard import Guard
from ...ports import PortLease
from ...processes import ProcessGroup
from ...sim.http import Exchange, Request, Server
from ...under_test import RouterError, answers_http
from .backends import HEALTH, NAMES, USUAL

_WAIT, _SIZE = re.compile(r"\[wait=([\d.]+)\]"), re.compile(r"\[size=(\d+)\]")
_START_WITHIN_S = 20.0
_KEEP_ALIVE_S = 30.0


def content_of(name: str, text: str) -> str:
    """What shard `name` answers to a message: its name first, so that it is known who answered."""
    size = _SIZE.search(text)
    return f"{name} " + ("x" * int(size[1]) if size else hashlib.sha256(text.encode()).hexdigest())


async def serve(name: str, port: int) -> None:
    """Serve until SIGTERM."""

    async def handle(request: Request, exchange: Exchange) -> None:
        if request.path == HEALTH:
            exchange.reply(200, b"", None)
        elif request.path not in USUAL:
            exchange.reply(404, b'{"detail":"Not Found"}')
        elif request.method == "POST" and request.path == CHAT_PATH:
            await _chat(name, request.body, exchange)
        else:
            exchange.reply(200, orjson.dumps(USUAL[request.path]))

    server = Server(handle, keep_alive_s=_KEEP_ALIVE_S)
    await server.listen(port)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()


async def _chat(name: str, body: bytes, exchange: Exchange) -> None:
    text = str(orjson.loads(body)["messages"][-1]["content"])
    if wait := _WAIT.search(text):
        await asyncio.sleep(float(wait[1]))
    message = {"role": "assistant", "content": content_of(name, text)}
    choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}
    exchange.reply(200, orjson.dumps({**USUAL[CHAT_PATH], "choices": [choice]}))


@dataclass
class HeavyShard:
    """One such process on a port that stays its own."""

    name: str
    port: int
    guard: Guard
    folder: Path
    group: ProcessGroup | None = None

    @property
    def url(self) -> str:
        """Where it is, without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it and wait until it serves. Raises RouterError."""
        argv = [sys.executable, "-m", __spec__.name, "--name", self.name, "--port", str(self.port)]
        self.group = ProcessGroup(argv, guard=self.guard, output=self.folder / f"shard-{self.name}.out")
        give_up = time.monotonic() + _START_WITHIN_S
        while not await answers_http(self.url):
            if self.group.exit_code() is not None or time.monotonic() > give_up:
                raise RouterError(f"the judge's own shard {self.name} does not serve: {self.group.tail()}")
            await asyncio.sleep(0.02)  # the interval of a bounded poll

    def kill(self) -> None:
        """SIGKILL to all of it."""
        if self.group is not None:
            self.group.close()
            self.group = None


@asynccontextmanager
async def heavy_shards(count: int, guard: Guard, folder: Path) -> AsyncIterator[Sequence[HeavyShard]]:
    """Some of them, serving; what they print goes to `folder`, which exists."""
    with ExitStack() as stack:
        shards = [HeavyShard(name, stack.enter_context(PortLease()).port, guard, folder) for name in NAMES[:count]]
        for shard in shards:
            stack.callback(shard.kill)
        await asyncio.gather(*(shard.start() for shard in shards))
        yield shards


def main() -> None:
    """The process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    asyncio.run(serve(options.name, options.port))


if __name__ == "__main__":
    main()
