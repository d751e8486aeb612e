"""An event loop in a thread of its own, for callers that are not async: pytest items and fixtures."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")
_CLEAN_UP_WITHIN_S = 30.0


class Portal:
    """Runs coroutines on a background loop from ordinary code."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gymproof-chaos", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.call(self._loop.shutdown_asyncgens())
        self.call(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end. An interruption (Ctrl-C, a test's timeout) cancels it and waits for its clean-up."""
        tasks: list[asyncio.Task[T]] = []
        ended = threading.Event()

        def start() -> None:
            tasks.append(self._loop.create_task(work))
            tasks[0].add_done_callback(lambda _task: ended.set())

        def cancel() -> None:
            if tasks:
                tasks[0].cancel()
            else:  # interrupted before it was handed over
                work.close()
                ended.set()

        try:
            self._loop.call_soon_threadsafe(start)
            # In slices, so that a signal that reached another thread is noticed by this one.
            while not ended.wait(1.0):
                pass
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            ended.wait(_CLEAN_UP_WITHIN_S)
            raise
        return tasks[0].result()

    @contextmanager
    def inside(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """An async context manager as an ordinary one. It is not told what is raised inside."""
        value = self.call(_enter(manager))
        try:
            yield value
        finally:
            self.call(_leave(manager))


class Blocking:
    """A view of an object whose async methods can be called as ordinary ones; the rest is passed through."""

    def __init__(self, portal: Portal, wrapped: Any) -> None:
        self._portal = portal
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._wrapped, name)
        return self._blocking(value) if inspect.iscoroutinefunction(value) else value

    def _blocking(self, method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        return lambda *args, **kwargs: self._portal.call(method(*args, **kwargs))


async def _enter(manager: AbstractAsyncContextManager[T]) -> T:
    return await manager.__aenter__()


async def _leave(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)
