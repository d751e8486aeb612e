"""Prime Intellect's verifiers: an agent's own OpenAI SDK, the interception server, and the client behind it.

A rollout's agent calls the interception server, which asks the model server once for each call and hands a failure
on as a status that the agent's SDK knows; that SDK is who tries again. The only file that knows `verifiers`.
"""

import importlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

from ..contract import Timing
from . import openai_sdk
from .base import ClientKind, ClientUnavailableError, Pace

_KEY_VARIABLE = "GYMPROOF_NO_SUCH_KEY"  # not set, so the key is "EMPTY"


class VerifiersClient:
    """The chain with the model server's URL as an argument; each call is a rollout of its own."""

    def __init__(self, v1: ModuleType, server: Any, agent: Any, timeout: dict[str, float]) -> None:
        self._v1 = v1
        self._server = server
        self._agent = agent
        self._timeout = timeout

    async def chat(self, base_url: str, /, **body: Any) -> Any:
        """What an agent's `POST /chat/completions` comes to when verifiers was given `base_url`."""
        async with self._server.acquire(self._rollout(base_url, body["model"])) as (url, secret, _state):
            agent = openai_sdk.OpenAIClient(self._agent.with_options(api_key=secret))
            return await agent.chat(f"{url}/v1", **body)

    def _rollout(self, base_url: str, model: str) -> Any:
        v1 = self._v1
        endpoint = v1.EvalClientConfig(base_url=base_url, api_key_var=_KEY_VARIABLE, timeout=self._timeout)
        task = v1.TraceTask(type="Task", data=v1.TaskData())
        trace = v1.Trace(task=task, agent=v1.AgentInfo(config={}))
        session = _submodule("session").RolloutSession
        return session(ctx=v1.ModelContext(model=model, client=endpoint), trace=trace)


@asynccontextmanager
async def open_verifiers(pace: Pace | None = None) -> AsyncIterator[VerifiersClient]:
    """The chain in the running loop; the first one costs about 13 s of imports. Raises ClientUnavailableError."""
    v1, server = _import_verifiers(), _submodule("interception.server").InterceptionServer
    timeout = {} if pace is None else {"connect": pace.connect_s}
    with _quiet():
        async with server() as running, openai_sdk.open_sdk(pace) as agent:
            yield VerifiersClient(v1, running, agent, timeout)


def timing() -> Timing:
    """The agent's SDK decides, but for connecting, which the relay does; it hands no `Retry-After` on."""
    relay = _import_verifiers().EvalClientConfig().timeout
    agent = openai_sdk.timing()
    return replace(agent, connect_s=relay.connect, obeys_retry_after_s=0.0)


def _import_verifiers() -> ModuleType:
    KIND.version()
    try:
        return importlib.import_module("verifiers.v1")
    except ImportError as error:
        raise ClientUnavailableError(f"verifiers is installed but does not import: {error}") from error


def _submodule(name: str) -> Any:
    return importlib.import_module(f"verifiers.v1.{name}")


@contextmanager
def _quiet() -> Iterator[None]:
    """The interception server logs each failure, which is what all these calls are about."""
    logger = logging.getLogger("verifiers")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


KIND = ClientKind(
    package="verifiers",
    how_to_get_it=lambda: "pip install verifiers (in an environment without nemo-gym, whose openai is older)",
    under=("openai", "aiohttp", "httpx", "httpcore", "h11"),
    open=open_verifiers,
    timing=timing,
    pace=openai_sdk.KIND.pace,
)
