"""The router under test in virtual time: named like an entry point, loaded when it is needed, never imported here.

So the judge still shares no code with what it judges, and judges any router that runs on asyncio.
"""

import importlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast

GYM_ROUTER_CORE = "gymproof.router.embedded:serve_on"


class CoreError(ValueError):
    """A core that cannot be loaded; the message names it and what would be right."""


class Core(Protocol):
    """Serves on the running event loop until its context ends."""

    def __call__(
        self, listener: Any, backends: Sequence[str], *, seed: int, **settings: Any
    ) -> AbstractAsyncContextManager[Any]:
        """Serve on `listener`, which goes to `loop.create_server(sock=...)`.

        `seed` is for whatever the router draws by chance.
        `settings` are `backend_timeout_s`, `connect_timeout_s`, `max_attempts`, `stall_after_s` and `probe_interval_s`.
        """


def load_core(path: str) -> Core:
    """The core that `MODULE:NAME` names. Raises CoreError."""
    module, _, name = path.partition(":")
    try:
        return cast("Core", getattr(importlib.import_module(module), name))
    except (ImportError, AttributeError, ValueError) as error:
        right = f"MODULE:NAME of an async context manager such as {GYM_ROUTER_CORE} would be right"
        raise CoreError(f"router core {path!r} cannot be loaded: {error}; {right}") from error
