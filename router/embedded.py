"""The router on an event loop and a socket of somebody else's, for those who run it inside their own process."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from .config import make_config
from .core import Router


@asynccontextmanager
async def serve_on(listener: Any, backends: Sequence[str], *, seed: int, **settings: Any) -> AsyncIterator[Router]:
    """A router that serves on `listener`, a bound socket, until the context ends; what is in flight then is cut off.

    `backends` are URLs, `seed` is what its policy draws from, `settings` are further keys of RouterConfig.
    Raises ConfigError.
    """
    router = Router(make_config({"backends": tuple(backends), **settings}), Random(seed))  # noqa: S311 - no secret
    await router.start(listener)
    try:
        yield router
    finally:
        await router.stop(drain=False)
