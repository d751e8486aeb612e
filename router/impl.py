"""`GenerationRouterImpl`: the router as a training setup holds it, with NeMo-RL's names and meanings.

It owns a thread with an event loop; everything public may be called from any other thread.
"""

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from aiohttp import web

from .app import build_app
from .config import HealthMode, make_config
from .core import Router
from .events import LOG
from .sockets import bind_both
from .urls import authority

T = TypeVar("T")
CALL_TIMEOUT_S = 30.0


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop loop where there is uvloop, else asyncio's."""
    try:
        import uvloop  # noqa: PLC0415  not on every platform
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class GenerationRouterImpl:
    """Routing logic and HTTP server behind one URL that stays the same for the life of a run.

    Everything is built in the constructor, so that a restarted holder is usable at once; `serve_in_background` binds.

    Arguments: `backend_urls` as `http://host:port/v1` (other spellings are accepted); `backend_timeout_s` is the whole
    budget of one request, attempts included; `connect_timeout_s` bounds one connect; `no_healthy_backend_status` is
    answered when no shard may serve, and is refused if NeMo-Gym retries it without bound. With `health_managed`,
    a controller decides who serves: requests wait for its first `set_serving_backends`, for `first_push_within_s` (10)
    from the start; without one, every backend serves from then on. Without `health_managed`, the router probes and
    ejects by itself. Any further key of RouterConfig can be given by name.

    Raises ConfigError.
    """

    def __init__(
        self,
        *,
        backend_urls: list[str],
        host: str,
        port: int,
        backend_timeout_s: float,
        connect_timeout_s: float,
        no_healthy_backend_status: int,
        health_managed: bool = False,
        **settings: Any,
    ) -> None:
        if health_managed:
            settings["health"] = HealthMode.PUSHED
        self.config = make_config(
            {
                "backends": tuple(backend_urls),
                "host": host,
                "port": port,
                "backend_timeout_s": backend_timeout_s,
                "connect_timeout_s": connect_timeout_s,
                "no_healthy_backend_status": no_healthy_backend_status,
                **settings,
            }
        )
        self._router = Router(self.config)
        self._port = port
        self._admin_port = self.config.admin_port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._drain_on_stop = False

    def base_url(self) -> str:
        """The single URL for NeMo-Gym. With port 0 it is known once `serve_in_background` has bound."""
        return f"http://{authority(self.config.host, self._port)}/v1"

    def admin_url(self) -> str | None:
        """The base of the admin port, or None without one."""
        return None if self._admin_port is None else f"http://{authority(self.config.admin_host, self._admin_port)}"

    def set_serving_backends(self, urls: list[str]) -> None:
        """Replace the set that may serve, by the full set. Unknown URLs are reported in the log and ignored."""
        self._in_loop(lambda: self._router.set_serving(urls))

    def report_refit(self, url: str) -> bool:
        """Readmit a shard whose weights have just been refitted. False if it is no backend."""
        return self._in_loop(lambda: self._router.report_refit(url))

    def announce_pause(self) -> None:
        """Before the engines are paused, as for a weight update: until `announce_resume`, silence ejects nobody.

        Requests are sent on as usual, and wait in the engines; a deadline that passes meanwhile is no strike.
        """
        self._in_loop(self._router.announce_pause)

    def announce_resume(self) -> None:
        """Once the engines generate again."""
        self._in_loop(self._router.announce_resume)

    def drain_backend_outcomes(self) -> dict[str, tuple[int, int]]:
        """Per backend (successes, failures) since the last call. A crash that cuts many requests is one failure.

        Backends with nothing to report are left out.
        """
        return self._in_loop(self._drain)

    def metrics(self) -> dict[str, float]:
        """The router's numbers as one flat dict; per shard the key ends in its URL."""
        return self._in_loop(self._numbers)

    def build_app(self) -> web.Application:
        """An aiohttp application that serves Gym's endpoints, for those who run their own server."""
        return build_app(self._router.listener)

    def serve_in_background(self) -> None:
        """Bind now, then serve on a daemon thread. Raises OSError naming the port when it is taken."""
        if self._thread is not None:
            raise RuntimeError("the router is serving already")
        listener, admin = bind_both(self.config)
        self._port = listener.getsockname()[1]
        self._admin_port = None if admin is None else admin.getsockname()[1]
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(listener, admin, started), name="gym-router", daemon=True
        )
        self._thread.start()
        started.result(CALL_TIMEOUT_S)

    def is_serving(self) -> bool:
        """Whether the thread that serves is alive and takes requests."""
        if self._thread is None or not self._thread.is_alive() or self._loop is None:
            return False
        return not self._router.listener.draining

    def close(self, *, drain: bool = False) -> None:
        """Stop serving and join the thread. With `drain`, requests in flight get their answers first."""
        thread, loop, stop = self._thread, self._loop, self._stop
        if thread is None or loop is None or stop is None:
            self._router.journal.close()
            return
        self._drain_on_stop = drain
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        self._thread = None

    def _run(self, listener: socket.socket, admin: socket.socket | None, started: "Future[None]") -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            try:
                runner.run(self._serve(listener, admin, started))
            except Exception as error:  # noqa: BLE001  whoever waits for the start has to know
                LOG.exception("the router stopped")
                if not started.done():
                    started.set_exception(error)

    async def _serve(self, listener: socket.socket, admin: socket.socket | None, started: "Future[None]") -> None:
        self._stop = asyncio.Event()
        await self._router.start(listener, admin)
        self._loop = asyncio.get_running_loop()
        started.set_result(None)
        await self._stop.wait()
        await self._router.stop(drain=self._drain_on_stop)

    def _in_loop(self, function: Callable[[], T]) -> T:
        """Run `function` where the router's state lives."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or not thread.is_alive() or thread is threading.current_thread():
            return function()
        done: Future[T] = Future()

        def call() -> None:
            try:
                done.set_result(function())
            except BaseException as error:  # noqa: BLE001  handed to the caller
                done.set_exception(error)

        loop.call_soon_threadsafe(call)
        return done.result(CALL_TIMEOUT_S)

    def _drain(self) -> dict[str, tuple[int, int]]:
        counts = {shard.url: shard.drain() for shard in self._router.fleet.shards}
        return {url: pair for url, pair in counts.items() if any(pair)}

    def _numbers(self) -> dict[str, float]:
        router = self._router
        numbers: dict[str, float] = {
            "in_flight": router.tally.in_flight,
            "answers": sum(router.tally.answers.values()),
            "serving_backends": sum(shard.record.serving for shard in router.fleet.members),
            "backends": len(router.fleet.members),
            "pushes": router.pushes,
            "paused": int(router.fleet.paused),
        }
        for shard in router.fleet.shards:
            numbers[f"in_flight/{shard.url}"] = shard.in_flight
        return numbers
