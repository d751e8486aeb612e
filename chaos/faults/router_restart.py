"""The router itself ends and comes back on the same port while requests are in flight."""

import asyncio
import signal
from typing import ClassVar, Literal

from pydantic import Field

from .base import Layer, RouterFault, RouterHandle


class RouterRestart(RouterFault):
    """End the router by `signal`, leave its port empty for `down_s` seconds, start it again."""

    layer: ClassVar[Layer] = Layer.ROUTER
    signal: Literal["SIGTERM", "SIGKILL"] = "SIGKILL"
    down_s: float = Field(default=0.2, ge=0)

    async def strike(self, router: RouterHandle, entry_url: str) -> str:
        """Stop, wait, start; the end of the process and its first answer afterwards are waited for."""
        await router.stop(signal.Signals[self.signal])
        await asyncio.sleep(self.down_s)  # the length of the outage is the fault's parameter
        await router.start()
        return f"{self.signal}, back at {entry_url} after at least {self.down_s:g} s"
