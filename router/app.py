"""The same service as an aiohttp application, for those who run their own aiohttp server.

`gym-router` and `serve_in_background` do not use it: they listen with `listener`, at a third of the cost. Errors that
an aiohttp server makes before it calls the application, such as one for a malformed head, are that server's.
"""

import asyncio
import time
from collections.abc import Awaitable

from aiohttp import web
from multidict import CIMultiDict

from .answers import Answer
from .calls import ClientStream
from .client_connection import CONTINUE
from .failures import ClientGoneError
from .intake import body_too_large, malformed
from .listener import Listener
from .surface import origin_form
from .wire import Message

ONE_MIB = 1 << 20


class AppStream:
    """A streamed answer through aiohttp."""

    def __init__(self, response: web.StreamResponse, idle_s: float) -> None:
        self._response = response
        self._idle_s = idle_s

    async def write(self, chunk: bytes) -> None:
        """Pass a piece on. Raises ClientGoneError."""
        await self._bounded(self._response.write(chunk))

    async def end(self) -> None:
        """End it properly. Raises ClientGoneError."""
        await self._bounded(self._response.write_eof())

    async def _bounded(self, step: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._idle_s):
                await step
        except (ConnectionError, TimeoutError) as error:
            raise ClientGoneError(str(error) or "the client stopped reading") from None


def build_app(listener: Listener) -> web.Application:
    """An application that takes every path and answers as the router's own listener does."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await serve(listener, request)

    handler_args = {"auto_decompress": False, "handler_cancellation": True}
    app = web.Application(client_max_size=listener.limits.max_body + ONE_MIB, handler_args=handler_args)
    app.router.add_route("*", "/{path:.*}", handle, expect_handler=_leave_expectation)
    return app


async def serve(listener: Listener, request: web.Request) -> web.StreamResponse:
    """One request."""
    message = Message()
    message.method = request.method.encode("latin-1")
    message.target = origin_form(request.raw_path.encode("utf-8", "surrogateescape"))
    message.started = time.monotonic()
    for name, value in request.raw_headers:
        message.head.add(name, value)
    refused = listener.admit(message)
    if refused is None:
        refused = await _read_body(listener, request, message)
    if refused is not None:
        listener.refused(refused)
        return _response(refused)
    streams: list[web.StreamResponse] = []

    async def open_stream(status: int, headers: tuple[tuple[str, str], ...]) -> ClientStream:
        response = web.StreamResponse(status=status, headers=CIMultiDict(headers))
        streams.append(response)
        try:
            await response.prepare(request)
        except ConnectionError as error:
            raise ClientGoneError(str(error)) from None
        return AppStream(response, listener.limits.client_idle_s)

    answer = await listener.serve(message, open_stream)
    if answer is None and not streams:
        raise ConnectionResetError("the client closed its connection")
    return streams[0] if answer is None else _response(answer)


async def _read_body(listener: Listener, request: web.Request, message: Message) -> Answer | None:
    if message.head.expect:
        await request.writer.write(CONTINUE)
        request.writer.output_size = 0
    try:
        async for chunk in request.content.iter_any():
            message.add(chunk)
            if message.size > listener.limits.max_body:
                return body_too_large(listener.limits)
    except web.RequestPayloadError:
        return malformed()
    return None


async def _leave_expectation(_request: web.Request) -> None:
    """Answered after the head has been admitted."""


def _response(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, headers=CIMultiDict(answer.headers), body=answer.body)
