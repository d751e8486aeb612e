"""The OpenAI Python SDK, as it comes: two retries, 600 seconds for silence, 5 for connecting.

The only file that knows `openai`; it is imported when a client is opened, not before.
"""

import importlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, cast

from ..contract import Timing
from .base import ClientKind, ClientUnavailableError, Pace


class OpenAIClient:
    """`AsyncOpenAI` with the server's URL as an argument."""

    def __init__(self, sdk: Any) -> None:
        self._sdk = sdk

    async def chat(self, base_url: str, /, **body: Any) -> Any:
        """`POST {base_url}/chat/completions`. Fields that the SDK does not know travel in its `extra_body`."""
        to = self._sdk.with_options(base_url=base_url)
        known = {key: body[key] for key in ("model", "messages")}
        extra = {key: value for key, value in body.items() if key not in known}
        return await to.chat.completions.create(**known, extra_body=extra or None)

    async def tokenize(self, base_url: str, /, **body: Any) -> Any:
        """`POST /tokenize` beside `/v1`, which the SDK has no method for, with its retries all the same."""
        to = self._sdk.with_options(base_url=base_url.removesuffix("/v1"))
        return await to.post("/tokenize", body=body, cast_to=object)


@asynccontextmanager
async def open_openai(pace: Pace | None = None) -> AsyncIterator[OpenAIClient]:
    """The SDK for the running loop. Raises ClientUnavailableError where it is missing."""
    async with open_sdk(pace) as sdk:
        yield OpenAIClient(sdk)


def open_sdk(pace: Pace | None = None) -> AbstractAsyncContextManager[Any]:
    """`AsyncOpenAI` itself, for what is built upon it."""
    openai = _import_openai()
    kind, options = openai.AsyncOpenAI, {"base_url": "http://127.0.0.1:1/v1", "api_key": "gymproof"}
    if pace is not None:
        # The SDK's own class for it, since versions differ in their HTTP library.
        options["timeout"] = type(openai.DEFAULT_TIMEOUT)(pace.silence_s, connect=pace.connect_s)
    if pace is not None and pace.sleep_s is not None:
        kind = type("Paced", (kind,), {"_calculate_retry_timeout": lambda *_args, **_kwargs: pace.sleep_s})
    return cast("AbstractAsyncContextManager[Any]", kind(**options))


def timing() -> Timing:
    """The limits that the installed SDK comes with, asked of its own code."""
    openai, constants = _import_openai(), importlib.import_module("openai._constants")
    pauses = (constants.INITIAL_RETRY_DELAY * 2.0**retry for retry in range(openai.DEFAULT_MAX_RETRIES))
    return Timing(
        silence_s=openai.DEFAULT_TIMEOUT.read,
        connect_s=openai.DEFAULT_TIMEOUT.connect,
        pauses_s=tuple(min(pause, constants.MAX_RETRY_DELAY) for pause in pauses),
        idle_s=openai.DEFAULT_CONNECTION_LIMITS.keepalive_expiry,
        obeys_retry_after_s=_obeyed(openai),
    )


def _obeyed(openai: Any) -> float:
    """The longest `Retry-After`, in whole seconds, that the SDK waits for."""
    sdk = openai.AsyncOpenAI(base_url="http://127.0.0.1:1/v1", api_key="gymproof")
    options = openai._models.FinalRequestOptions(method="post", url="/")  # noqa: SLF001
    wait = partial(sdk._calculate_retry_timeout, 1, options)  # noqa: SLF001
    headers = type(sdk._client.headers)  # noqa: SLF001
    return float(max(s for s in range(1, 3600) if wait(headers({"retry-after": str(s)})) == s))


def _import_openai() -> Any:
    KIND.version()
    try:
        return importlib.import_module("openai")
    except ImportError as error:
        raise ClientUnavailableError(f"openai is installed but does not import: {error}") from error


KIND = ClientKind(
    package="openai",
    how_to_get_it=lambda: "pip install 'gymproof[clients]'",
    under=("httpx", "httpcore", "httpx2", "httpcore2", "h11", "anyio"),
    open=open_openai,
    timing=timing,
    # Longer than three silent or refused tries; shorter than one try of a server that drips, which nothing ends.
    pace=Pace(patience_s=18.0, heal_after_s=6.0, concurrency=8),
)
