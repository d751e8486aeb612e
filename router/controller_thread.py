"""A FleetController for a driver without an event loop: the same calls, blocking, from any thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Self

from .controller import FleetController
from .health import State

CALL_TIMEOUT_S = 30.0


class ControllerThread:
    """A context manager: inside, the controller ticks every `every_s` seconds on a thread of its own.

    What ends its loop is raised by the next `check`, which a driver calls at every step, and by every report.
    """

    def __init__(self, controller: FleetController, every_s: float = 1.0) -> None:
        self._controller = controller
        self._every_s = every_s
        self._error: Exception | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet controller", daemon=True)

    def check(self) -> None:
        """Raise what has ended the loop, FleetExhaustedError or RouterLostError; else nothing."""
        if self._error is not None:
            raise self._error

    def states(self) -> dict[str, State]:
        """Every shard's state."""
        return self._controller.states()

    def report_restart(self, url: str) -> None:
        """See FleetController. Returns once the router has been told, or could not be."""
        self._call(lambda: self._controller.report_restart(url))

    def report_refit(self, url: str) -> None:
        """See FleetController. Returns once the router has been told, or could not be."""
        self._call(lambda: self._controller.report_refit(url))

    def announce_pause(self) -> None:
        """See FleetController. Returns once the router has been told, or could not be."""
        self._call(self._controller.announce_pause)

    def announce_resume(self) -> None:
        """See FleetController. Returns once the router has been told, or could not be."""
        self._call(self._controller.announce_resume)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait(CALL_TIMEOUT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        """Until the end of the context, whatever becomes of the ticks: a report may be on its way."""
        self._loop, self._leave = asyncio.get_running_loop(), asyncio.Event()
        ticking = asyncio.create_task(self._tick_on())
        self._started.set()
        await self._leave.wait()
        ticking.cancel()

    async def _tick_on(self) -> None:
        try:
            await self._controller.run(self._every_s)
        except Exception as error:  # noqa: BLE001  the driver's next check raises it
            self._error = error

    def _call(self, report: Callable[[], Coroutine[None, None, None]]) -> None:
        self.check()
        asyncio.run_coroutine_threadsafe(report(), self._loop).result(CALL_TIMEOUT_S)
