"""Servers that are nothing but a socket, for tests of what stands between sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _raw_server(handler: Handler) -> AsyncIterator[int]:
    """A loopback server that runs `handler` on each connection; gives its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader, writer):
        try:
            await handler(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    def accept(reader, writer):
        tasks.add(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def raw_server():
    """A context manager around a server; its argument handles (reader, writer), its value is the port."""
    return _raw_server
