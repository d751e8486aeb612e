"""The real NeMo-Gym client, from the installed `nemo-gym` package."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gymproof.validators.clients import nemo_gym

from .base import ClientOptions


class NemoGymClient:
    """`GymClient` over the real `NeMoGymAsyncOpenAI`."""

    def __init__(self, base_url: str, gym: nemo_gym.GymClient) -> None:
        self._base_url = base_url
        self._gym = gym

    async def chat(self, **body: Any) -> Any:
        """See `GymClient.chat`."""
        return await self._gym.chat(self._base_url, **body)

    async def tokenize(self, **body: Any) -> Any:
        """See `GymClient.tokenize`."""
        return await self._gym.tokenize(self._base_url, **body)


@asynccontextmanager
async def open_nemo_gym(options: ClientOptions) -> AsyncIterator[NemoGymClient]:
    """Open the real client in the running loop, one at a time in a process; the first one costs about 5 s of imports.

    Raises ClientUnavailableError, which names the command that installs it, where `nemo-gym` is missing.
    """
    async with nemo_gym.open_gym_client(on_print=options.on_print) as gym:
        yield NemoGymClient(options.base_url, gym)
