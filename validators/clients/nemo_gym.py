"""The real NeMo-Gym client, standing alone: no head server, no Hydra, no Ray cluster.

The only file that knows `nemo_gym`. Importing that takes about five seconds, so it happens
when a client is opened, not before.
"""

import asyncio
import builtins
import gc
import importlib
import sys
import types
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

from ..contract import Timing
from .base import ClientKind, ClientUnavailableError, Pace

MINIMUM_PYTHON = (3, 12)
PAUSE_S = 0.5  # written out in the client's two loops, not named there
_LEAKS = ("Unclosed connection", "Unclosed response")


class GymClient:
    """NeMo-Gym's own client and retry loops, with the server's URL as an argument."""

    def __init__(self, client_class: Callable[..., Any], api_key: str) -> None:
        self._class = client_class
        self._api_key = api_key

    async def chat(self, base_url: str, /, **body: Any) -> Any:
        """`POST {base_url}/chat/completions`; `base_url` ends in `/v1`, as Gym's configuration has it."""
        return await self._to(base_url).create_chat_completion(**body)

    async def tokenize(self, base_url: str, /, **body: Any) -> Any:
        """`POST /tokenize` beside `/v1`, as Gym does after each chat answer."""
        return await self._to(base_url).create_tokenize(**body)

    async def responses(self, base_url: str, /, **body: Any) -> Any:
        """`POST {base_url}/responses`."""
        return await self._to(base_url).create_response(**body)

    async def models(self, base_url: str, /) -> Any:
        """`GET {base_url}/models`."""
        return await self._to(base_url).create_models()

    def _to(self, base_url: str) -> Any:
        return self._class(base_url=base_url, api_key=self._api_key)


@asynccontextmanager
async def open_gym_client(
    *,
    sleep_s: float | None = None,
    api_key: str = "gymproof",
    on_print: Callable[[str], None] | None = None,
) -> AsyncIterator[GymClient]:
    """The real client for the running loop; its connection pool closes with the context.

    `sleep_s` replaces the half second between its tries, for measuring. What it prints goes to
    `on_print`, or nowhere. One client at a time in a process, since Gym's pool is a global:
    a second one raises RuntimeError.
    """
    openai_utils, server_utils = _import_gym()
    if server_utils.is_global_aiohttp_client_setup():
        raise RuntimeError("a NeMo-Gym client is open in this process already: share it, or close it first")
    with (
        _no_complaints(),
        _quiet(openai_utils, server_utils, on_print),
        _pace(openai_utils, server_utils, sleep_s),
    ):
        session = server_utils.set_global_aiohttp_client(server_utils.GlobalAIOHTTPAsyncClientConfig())
        try:
            yield GymClient(openai_utils.NeMoGymAsyncOpenAI, api_key)
        finally:
            # Left in place, Gym's exit hook would close it on another loop.
            server_utils._GLOBAL_AIOHTTP_CLIENT = None  # noqa: SLF001
            await session.close()


def _import_gym() -> tuple[Any, Any]:
    KIND.version()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return (
                importlib.import_module("nemo_gym.openai_utils"),
                importlib.import_module("nemo_gym.server_utils"),
            )
        except ImportError as error:
            raise ClientUnavailableError(f"nemo-gym is installed but does not import: {error}") from error


def _open(pace: Pace | None = None) -> AbstractAsyncContextManager[GymClient]:
    return open_gym_client(sleep_s=pace.sleep_s if pace else None)


def timing() -> Timing:
    """The limits that the installed client comes with, read off its session: it has a pool, two pauses and no clock."""
    return asyncio.run(_timing())


async def _timing() -> Timing:
    openai_utils, server_utils = _import_gym()
    async with open_gym_client():
        session = server_utils.get_global_aiohttp_client()
        limits, idle_s = session.timeout, session.connector._keepalive_timeout  # noqa: SLF001
    return Timing(
        silence_s=limits.sock_read or limits.total,
        connect_s=limits.sock_connect or limits.connect,
        pauses_s=(PAUSE_S,) * (openai_utils.MAX_NUM_TRIES - 1),
        idle_s=idle_s,
    )


def _how_to_get_it() -> str:
    if sys.version_info < MINIMUM_PYTHON:
        here = ".".join(map(str, sys.version_info[:2]))
        return f"nemo-gym needs Python >= 3.12 and this is {here}: run uv run --python 3.12 --extra gym ..."
    return "pip install 'gymproof[gym]'"


@contextmanager
def _no_complaints() -> Iterator[None]:
    """Keep back what aiohttp says of Gym, not of its caller.

    Gym hands over large bodies as bytes, and drops a response unclosed when its body fails to
    read; the connection is then closed by the garbage collector, which has to run in here.
    """
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()

    def handler(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context["message"] not in _LEAKS:
            if before is None:
                loop.default_exception_handler(context)
            else:
                before(loop, context)

    with warnings.catch_warnings():
        for complaint in ("Sending a large body", *_LEAKS):
            warnings.filterwarnings("ignore", complaint, ResourceWarning)
        loop.set_exception_handler(handler)
        try:
            yield
        finally:
            gc.collect()
            loop.set_exception_handler(before)


@contextmanager
def _quiet(openai_utils: Any, server_utils: Any, on_print: Callable[[str], None] | None) -> Iterator[None]:
    def caught(*values: Any, sep: str | None = " ", **_kwargs: Any) -> None:
        if on_print is not None:
            on_print((" " if sep is None else sep).join(map(str, values)))

    with _replaced(openai_utils, "print", caught), _replaced(server_utils, "print", caught):
        yield


@contextmanager
def _pace(openai_utils: Any, server_utils: Any, sleep_s: float | None) -> Iterator[None]:
    """Give both retry loops another clock: one imports `sleep`, the other calls `asyncio.sleep`."""
    if sleep_s is None:
        yield
        return

    async def sleep(_delay: float) -> None:
        await asyncio.sleep(sleep_s)

    paced = types.ModuleType("asyncio")
    paced.__dict__.update(asyncio.__dict__, sleep=sleep)
    with _replaced(openai_utils, "sleep", sleep), _replaced(server_utils, "asyncio", paced):
        yield


@contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """Shadow a module's global; a builtin such as `print` is shadowed and then uncovered again."""
    before = module.__dict__.get(name)
    setattr(module, name, value)
    try:
        yield
    finally:
        if before is None and hasattr(builtins, name):
            delattr(module, name)
        else:
            setattr(module, name, before)


KIND = ClientKind(
    package="nemo-gym",
    how_to_get_it=_how_to_get_it,
    under=("aiohttp",),
    open=_open,
    timing=timing,
)
