"""The client-facing side, on aiohttp's server: bytes to a `Call`, an `Answer` to bytes, and the listener's limits.

Every error that aiohttp would word itself (a malformed head, a header over its limit, a handler that raised) leaves
in the router's own JSON shape. A client that closes its connection cancels its handler, and with it the upstream.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from multidict import CIMultiDict

from .answers import Answer, refusal
from .calls import Call
from .dispatch import Dispatcher
from .events import LOG
from .failures import ClientGoneError
from .headers import forwarded
from .metrics import Tally
from .surface import outside

BACKLOG = 4096
# aiohttp hands this much to the socket before it waits for the client.
SLICE = 1 << 20


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """What a client may do. Sizes in bytes, times in seconds."""

    deadline_s: float
    max_body: int
    max_header: int = 64 << 10
    client_idle_s: float = 75.0  # a client that neither sends nor reads for this long is given up
    max_in_flight: int = 1 << 20


class RefusedError(Exception):
    """A request that the router turns down itself."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class JsonRequestHandler(RequestHandler):
    """aiohttp's connection, with the errors that never reach a handler in the router's JSON shape."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002  aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that could not be parsed, or whose handler raised."""
        if isinstance(exc, LineTooLong):
            answer = refusal(431, "header_too_large", "a header line or the request line is too long")
        elif isinstance(exc, HttpProcessingError):
            answer = refusal(422, "malformed_request", "the request is not valid HTTP")
        else:
            LOG.error("unexpected error %s (%s)", status, message, exc_info=exc)
            answer = refusal(500, "router_error", "unexpected error inside the router")
        response = to_response(answer)
        response.force_close()
        return response

    @property
    def idle(self) -> bool:
        """No request has been begun on this connection that is not finished."""
        return not self._request_in_progress and not self._messages


class JsonServer(web.Server):
    """Makes the connections."""

    def __call__(self) -> RequestHandler:
        """A new connection."""
        return JsonRequestHandler(self, loop=self._loop, **self._kwargs)


def to_response(answer: Answer) -> web.Response:
    """An answer as aiohttp's response."""
    return web.Response(status=answer.status, headers=CIMultiDict(answer.headers), body=answer.body)


class DownstreamStream:
    """A streamed answer to one client."""

    def __init__(self, response: web.StreamResponse, idle_s: float) -> None:
        self.response = response
        self._idle_s = idle_s

    async def write(self, chunk: bytes | memoryview) -> None:
        """Pass a piece on; a client that does not read for `idle_s` counts as gone. Raises ClientGoneError."""
        try:
            async with asyncio.timeout(self._idle_s):
                await self.response.write(chunk)
        except (ConnectionError, TimeoutError) as error:
            raise ClientGoneError(str(error) or "the client stopped reading") from None

    async def end(self) -> None:
        """End the stream properly. Raises ClientGoneError."""
        try:
            async with asyncio.timeout(self._idle_s):
                await self.response.write_eof()
        except (ConnectionError, TimeoutError) as error:
            raise ClientGoneError(str(error) or "the client stopped reading") from None


class Listener:
    """Serves one dispatcher."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        limits: ListenerLimits,
        tally: Tally,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dispatcher = dispatcher
        self._limits = limits
        self._tally = tally
        self._clock = clock
        self._numbers = count(1)
        self._finished = asyncio.Event()
        self.draining = False

    def server(self) -> JsonServer:
        """The low-level server: a protocol factory for `loop.create_server`."""
        return JsonServer(self.handle, handler_cancellation=True, **self._protocol_options())

    def app(self) -> web.Application:
        """The same as an application, for those who run their own aiohttp server."""
        app = web.Application(client_max_size=self._limits.max_body, handler_args=self._protocol_options())
        app.router.add_route("*", "/{path:.*}", self.handle)
        return app

    def _protocol_options(self) -> dict[str, Any]:
        return {
            "keepalive_timeout": self._limits.client_idle_s,
            "max_line_size": self._limits.max_header,
            "max_field_size": self._limits.max_header,
            "auto_decompress": False,
            "access_log": None,
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request."""
        started = self._clock()
        self._tally.in_flight += 1
        try:
            return await self._respond(request, started)
        except RefusedError as refused:
            self._tally.answered(refused.answer.status, dict(refused.answer.headers)["X-Router-Reason"], 0.0)
            response = to_response(refused.answer)
            if self.draining:
                response.force_close()
            return response
        finally:
            self._tally.in_flight -= 1
            if not self._tally.in_flight:
                self._finished.set()

    async def _respond(self, request: web.BaseRequest, started: float) -> web.StreamResponse:
        call = await self._call(request, started)
        opened: list[DownstreamStream] = []

        async def open_stream(status: int, headers: tuple[tuple[str, str], ...]) -> DownstreamStream:
            response = web.StreamResponse(status=status, headers=CIMultiDict(headers))
            if self.draining:
                response.force_close()
            opened.append(DownstreamStream(response, self._limits.client_idle_s))
            try:
                await response.prepare(request)
            except ConnectionError as error:
                raise ClientGoneError(str(error)) from None
            return opened[0]

        call.open_stream = open_stream
        answer = await self._dispatcher.dispatch(call)
        if answer is None:
            return self._after_stream(request, opened)
        response = to_response(answer)
        if self.draining:
            response.force_close()
        if len(answer.body) > SLICE:
            return await self._send_large(request, answer, response)
        return response

    @staticmethod
    def _after_stream(request: web.BaseRequest, opened: list[DownstreamStream]) -> web.StreamResponse:
        """What aiohttp is told after a stream; one that was not ended can only be cut off."""
        response = opened[0].response if opened else web.Response(status=500)
        if not opened or response._eof_sent:  # noqa: SLF001
            return response
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client stopped reading")

    async def _call(self, request: web.BaseRequest, started: float) -> Call:
        method, target = request.method, request.raw_path
        path = target.partition("?")[0]
        if (refused := outside(method, path)) is not None:
            raise RefusedError(refused)
        if self._tally.in_flight > self._limits.max_in_flight:
            text = f"the router already has {self._limits.max_in_flight} requests under way"
            raise RefusedError(refusal(500, "router_exhausted", text))
        body = await self._body(request)
        return Call(
            method=method.encode("latin-1"),
            target=target.encode("utf-8", "surrogateescape"),
            path=path,
            lines=forwarded(request.raw_headers),
            body=body,
            id=request.headers.get("X-Request-Id") or f"{next(self._numbers):x}",
            started=started,
            deadline=started + self._limits.deadline_s,
            open_stream=_not_open,
        )

    async def _body(self, request: web.BaseRequest) -> bytes:
        content = request.content
        self._check_size(request.content_length or 0)
        await self._answer_expectation(request)
        if content.is_eof():  # the usual case: it came together with the head
            body = content.read_nowait()
            self._check_size(len(body))
            return body
        chunks: list[bytes] = []
        size = 0
        try:
            while True:
                async with asyncio.timeout(self._limits.client_idle_s):
                    chunk = await content.readany()
                if not chunk:
                    return b"".join(chunks)
                chunks.append(chunk)
                size += len(chunk)
                self._check_size(size)
        except TimeoutError:
            raise RefusedError(refusal(408, "slow_client", "the request's body stopped coming")) from None
        except (RequestPayloadError, HttpProcessingError):
            raise RefusedError(refusal(422, "malformed_request", "the request's body is badly framed")) from None

    def _check_size(self, size: int) -> None:
        if size > self._limits.max_body:
            text = f"the request's body is larger than {self._limits.max_body >> 20} MiB (--max-body-mib)"
            raise RefusedError(refusal(413, "body_too_large", text))

    @staticmethod
    async def _answer_expectation(request: web.BaseRequest) -> None:
        expectation = request.headers.get("Expect")
        if expectation is None:
            return
        if expectation.lower() != "100-continue":
            raise RefusedError(refusal(417, "expectation_failed", "the only expectation served is 100-continue"))
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0

    async def _send_large(self, request: web.BaseRequest, answer: Answer, whole: web.Response) -> web.StreamResponse:
        """Send in slices, so that a client that stops reading is noticed and does not hold the answer for ever."""
        response = web.StreamResponse(status=answer.status, headers=CIMultiDict(answer.headers))
        response.content_length = len(answer.body)
        if not whole.keep_alive and whole.keep_alive is not None:
            response.force_close()
        await response.prepare(request)
        view = memoryview(answer.body)
        stream = DownstreamStream(response, self._limits.client_idle_s)
        try:
            for start in range(0, len(view), SLICE):
                await stream.write(view[start : start + SLICE])
            await stream.end()
        except ClientGoneError as error:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError(str(error)) from None
        return response

    # Ending

    async def drain(self, server: JsonServer, timeout_s: float) -> bool:
        """Let every request in flight get its answer; idle connections are closed. False if some did not."""
        self.draining = True
        for connection in server.connections:
            if isinstance(connection, JsonRequestHandler) and connection.idle:
                connection.close()
        try:
            async with asyncio.timeout(timeout_s):
                while self._tally.in_flight:
                    self._finished.clear()
                    await self._finished.wait()
        except TimeoutError:
            return False
        finally:
            await server.shutdown(timeout=1.0)
        return True


async def _not_open(_status: int, _headers: tuple[tuple[str, str], ...]) -> DownstreamStream:
    raise ClientGoneError("the call has no client stream")
