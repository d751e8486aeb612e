"""What a client of a run is, as the rollouts see it.

Only the protocol belongs here. A client keeps its own retry loops: they are part of what a run measures, so whatever
it raises goes up as it is.
"""

from typing import Any, Protocol


class GymClient(Protocol):
    """One client bound to one base URL (`http://host:port/v1`)."""

    async def chat(self, **body: Any) -> Any:
        """POST `body` to `{base_url}/chat/completions`; the decoded JSON, or the client's own exception."""

    async def tokenize(self, **body: Any) -> Any:
        """POST `body` to `/tokenize` beside `/v1`; the decoded JSON, or the client's own exception."""
