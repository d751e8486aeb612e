"""The API server process: vLLM's routes, and its ways to end.

Measured with vLLM 0.32. A killed engine: what is in flight gets a 500, `/health` says 503 for a moment, then the
port refuses and the process exits with 0; an idle server needs a watchdog's round to see it. SIGTERM: what is in
flight gets a 200 with `finish_reason` "abort", unless a shutdown timeout lets it finish. The real one races its own
engine here, and as often as not answers with a 500, or not at all until the client leaves; `--sigterm` chooses.
"""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import orjson

from ..shard_log import GENERATION_PATHS, ShardLog
from . import metrics
from .answers import DONE, ENGINE_DEAD, NOT_FETCHED, SHUTTING_DOWN, Answer, error_body, error_event
from .dev_routes import DevRoutes
from .engine import fork_engine
from .engine_client import EngineClient, EngineDeadError
from .http import Exchange, Handler, Request, Server
from .requests import (
    Generation,
    Problem,
    RequestError,
    chat_prompt,
    check_model,
    parse_generation,
    parse_json,
    parse_tokens,
    text_prompt,
)
from .settings import VERSION, Settings
from .tokens import decode
from .transfers import Connector, TransferError

_NOTICE_S = 0.15  # from an engine's end to the 500 of what is in flight
_WATCHDOG_S = 2.0  # from an idle engine's end to the shutdown
_REFUSE_S = 0.1  # from the decision to shut down after an engine's end to a closed port
_ABORT_S = 0.4  # from SIGTERM to a closed port
_EXIT_S = 0.6  # from a closed port to the exit


class Api:
    """Routes and life of one API server."""

    def __init__(self, settings: Settings, log: ShardLog, make_engine: Callable[..., EngineClient]) -> None:
        self._settings = settings
        self._log = log
        self._created = int(time.time())
        self._first_token = metrics.Histogram("vllm:time_to_first_token_seconds", "Time to first token in seconds.")
        self._whole = metrics.Histogram("vllm:e2e_request_latency_seconds", "End to end request latency in seconds.")
        self.engine = make_engine(notice_s=_NOTICE_S, on_death=self._engine_died)
        self._dev = DevRoutes(self.engine)
        self._connector = Connector(settings, log)
        self._server = Server(self._handle, keep_alive_s=settings.keep_alive_s)
        self.ended = asyncio.Event()  # the process should exit with 0
        self._ending: asyncio.Task[None] | None = None
        self._terminating = False
        self._routes = self._make_routes()

    async def run(self, engine: socket.socket) -> None:
        """Serve until a signal or the engine's death; returns when the process should exit with 0."""
        await self.engine.connect(engine)
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self.terminate)
        await self.listen()
        await self.ended.wait()

    async def listen(self) -> None:
        """Serve on the port."""
        await self._connector.listen()
        await self._server.listen(self._settings.port)

    def stop(self) -> None:
        """Close the port and every connection."""
        self._connector.stop()
        self._server.stop()

    # Routes

    def _make_routes(self) -> dict[str, dict[str, Handler]]:
        routes: dict[str, dict[str, Handler]] = {path: {"POST": self._generate} for path in GENERATION_PATHS}
        routes |= {
            "/tokenize": {"POST": self._tokenize},
            "/detokenize": {"POST": self._detokenize},
            "/v1/models": {"GET": self._models},
            "/health": {"GET": self._health},
            "/ping": {"GET": self._health, "POST": self._health},
            "/version": {"GET": self._version},
            "/load": {"GET": self._load},
            "/metrics": {"GET": self._metrics},
        }
        if self._settings.dev:
            routes |= self._dev.routes()
        return routes

    async def _handle(self, request: Request, exchange: Exchange) -> None:
        number = ""
        if request.method == "POST":
            request_id = request.headers.get("x-request-id", "")
            number = exchange.number = self._log.request(request.path, request.body, request_id)
            exchange.on_end = lambda status, sha256, size: self._log.response(number, status, sha256, size)
        try:
            await self._route(request, exchange)
        except RequestError as error:
            exchange.reply(error.problem.code, error_body(error.problem))
        except EngineDeadError:
            self._shut_down(_REFUSE_S)
            _give_up(exchange, ENGINE_DEAD)
        except TransferError:
            _give_up(exchange, NOT_FETCHED)
        finally:
            if number and not exchange.ended:
                self._log.disconnect(number)

    async def _route(self, request: Request, exchange: Exchange) -> None:
        methods = self._routes.get(request.path)
        if methods is None:
            exchange.reply(404, b'{"detail":"Not Found"}')
        elif request.method not in methods:
            exchange.reply(405, b'{"detail":"Method Not Allowed"}', allow=", ".join(methods))
        else:
            await methods[request.method](request, exchange)

    async def _generate(self, request: Request, exchange: Exchange) -> None:
        began = time.monotonic()
        body = parse_json(request.body, request.headers.get("content-type", ""))
        try:
            asked = self._admit(request.path, body)
        except RequestError:
            self._connector.reject(body)
            raise
        name = request.headers.get("x-request-id") or os.urandom(16).hex()
        answer = Answer(asked, self._settings.model, name, int(time.time()))
        if asked.stream:
            exchange.start_stream()
            for event in answer.opening():
                exchange.send(event)
        await self._connector.pull(body)
        async with aclosing(self.engine.generate(asked)) as chunks:
            async for tokens, finish in chunks:
                if not answer.tokens:
                    self._first_token.observe(time.monotonic() - began)
                answer.add(tokens, finish)
                if asked.stream:
                    exchange.send(answer.event(tokens, finish))
        self._whole.observe(time.monotonic() - began)
        if asked.stream:
            for event in answer.closing():
                exchange.send(event)
            exchange.end_stream()
        else:
            answer.transfer = self._connector.keep(body, answer.finish, name, exchange.number)
            exchange.reply(200, answer.whole())

    def _admit(self, path: str, body: dict[str, Any]) -> Generation:
        asked = parse_generation(path, body, self._settings)
        if self._terminating:
            raise RequestError(SHUTTING_DOWN)
        if self.engine.dead:
            raise EngineDeadError
        return asked

    async def _tokenize(self, request: Request, exchange: Exchange) -> None:
        body = parse_json(request.body, request.headers.get("content-type", ""))
        check_model(body, self._settings)
        tokens = chat_prompt(body) if "messages" in body else text_prompt(body)
        answer = {"count": len(tokens), "max_model_len": self._settings.max_model_len, "tokens": tokens}
        exchange.reply(200, orjson.dumps({**answer, "token_strs": None}))

    async def _detokenize(self, request: Request, exchange: Exchange) -> None:
        body = parse_json(request.body, request.headers.get("content-type", ""))
        check_model(body, self._settings)
        text = decode(parse_tokens(body), keep_special=True)
        exchange.reply(200, orjson.dumps({"prompt": text}))

    async def _models(self, _request: Request, exchange: Exchange) -> None:
        model = {
            "id": self._settings.model,
            "object": "model",
            "created": self._created,
            "owned_by": "vllm",
            "root": self._settings.model,
            "parent": None,
            "max_model_len": self._settings.max_model_len,
            "permission": [],
        }
        exchange.reply(200, orjson.dumps({"object": "list", "data": [model]}))

    async def _health(self, _request: Request, exchange: Exchange) -> None:
        exchange.reply(503 if self.engine.dead else 200, b"", None)

    async def _version(self, _request: Request, exchange: Exchange) -> None:
        exchange.reply(200, orjson.dumps({"version": VERSION}))

    async def _load(self, _request: Request, exchange: Exchange) -> None:
        exchange.reply(200, orjson.dumps({"server_load": self.engine.in_flight}))

    async def _metrics(self, _request: Request, exchange: Exchange) -> None:
        histograms = [self._first_token, self._whole]
        stats = {**self.engine.stats, **self._connector.stats()}
        page = metrics.render(stats, histograms, self._settings.model, self._dev.sleep_level)
        exchange.reply(200, page, metrics.CONTENT_TYPE)

    # Ends

    def _engine_died(self, in_flight: bool) -> None:
        if not in_flight:
            self._shut_down(_WATCHDOG_S)

    def terminate(self) -> None:
        """SIGTERM."""
        if self._terminating:
            return
        self._terminating = True
        if self._settings.shutdown_timeout_s > 0:
            self._ending = asyncio.get_running_loop().create_task(self._drain())
        elif self._settings.sigterm == "abort":
            self.engine.abort_all()
            self._shut_down(_ABORT_S)
        elif self._settings.sigterm == "error":
            self.engine.kill(unseen=False)
        else:
            self.engine.kill(unseen=True)
            self._ending = asyncio.get_running_loop().create_task(self._wait_for_clients())

    async def _drain(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.engine.idle.wait(), self._settings.shutdown_timeout_s)
        self._shut_down(_ABORT_S)

    async def _wait_for_clients(self) -> None:
        """Refuse new connections and leave when the last client has left."""
        await asyncio.sleep(_ABORT_S)
        self._server.stop_listening()
        await self._server.empty.wait()
        self._shut_down(0.0)

    def _shut_down(self, refuse_after_s: float) -> None:
        """Close the port in a while and exit a while later; the first closing counts."""
        asyncio.get_running_loop().call_later(refuse_after_s, self._close)

    def _close(self) -> None:
        self.stop()
        asyncio.get_running_loop().call_later(_EXIT_S, self.ended.set)


def _give_up(exchange: Exchange, problem: Problem) -> None:
    """Tell a client what went wrong: in a stream's tail, if the status line is out already."""
    if exchange.streaming:
        exchange.send(error_event(problem))
        exchange.send(DONE)
        exchange.end_stream()
    else:
        exchange.reply(problem.code, error_body(problem))


def main(settings: Settings) -> None:
    """Run one shard: this process is the API server, a forked child the engine."""
    engine_pid, engine = fork_engine(settings)
    try:
        asyncio.run(Api(settings, ShardLog(settings.log), partial(EngineClient, engine_pid)).run(engine))
    finally:
        os.kill(engine_pid, signal.SIGKILL)
        os.waitpid(engine_pid, 0)
