"""The real OpenAI Python SDK, from the installed `openai` package."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gymproof.validators.clients import openai_sdk

from .base import ClientOptions


class OpenAIClient:
    """`GymClient` over `AsyncOpenAI`, as it comes; answers are plain JSON, as rollouts read them."""

    def __init__(self, base_url: str, sdk: openai_sdk.OpenAIClient) -> None:
        self._base_url = base_url
        self._sdk = sdk

    async def chat(self, **body: Any) -> Any:
        """See `GymClient.chat`."""
        answer = await self._sdk.chat(self._base_url, **body)
        return answer.to_dict() if hasattr(answer, "to_dict") else answer

    async def tokenize(self, **body: Any) -> Any:
        """See `GymClient.tokenize`."""
        return await self._sdk.tokenize(self._base_url, **body)


@asynccontextmanager
async def open_openai(options: ClientOptions) -> AsyncIterator[OpenAIClient]:
    """Open the SDK in the running loop. Raises ClientUnavailableError, which names the command that installs it."""
    async with openai_sdk.open_openai() as sdk:
        yield OpenAIClient(options.base_url, sdk)
