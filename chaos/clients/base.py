"""What a client of a run is, as the rollouts see it.

Only the protocol belongs here. A client keeps its own retry loops: they are part of what a run measures, so whatever
it raises goes up as it is.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

Print = Callable[[str], None]


class GymClient(Protocol):
    """One client bound to one base URL (`http://host:port/v1`)."""

    async def chat(self, **body: Any) -> Any:
        """POST `body` to `{base_url}/chat/completions`; the decoded JSON, or the client's own exception."""

    async def tokenize(self, **body: Any) -> Any:
        """POST `body` to `/tokenize` beside `/v1`; the decoded JSON, or the client's own exception."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What a client is opened with: see `open_client`."""

    base_url: str
    on_print: Print | None = None
    answer_within_s: float | None = None


OpenClient = Callable[[ClientOptions], AbstractAsyncContextManager[GymClient]]
