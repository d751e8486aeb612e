"""A whole answer with a status that is not the shard's: what proxies, gateways and overloaded servers say.

NeMo-Gym retries 429, 502, 503, 504 and 520 without end, and follows a redirect to wherever it points.
"""

from pydantic import Field

from gymproof.validators.wire import BODILESS

from ..http1 import Request, Response
from ..scripting import Connection
from .base import Symptom
from .script import ScriptFault, error_body

_REDIRECTS = range(300, 400)


class Status(ScriptFault):
    """Each request is answered with `status` and an error body in vLLM's shape, without asking the shard.

    A redirect points at the shard itself; 204, 205 and 304 have no body.
    """

    status: int = Field(ge=200, le=599)
    retry_after: int | None = Field(default=None, ge=0, description="seconds, sent as Retry-After")

    def symptoms(self) -> frozenset[Symptom]:
        """The status, or a 200 without the answer."""
        return frozenset({Symptom.WRONG if self.status == 200 else Symptom.STATUS})  # noqa: PLR2004

    async def on_request(self, connection: Connection, request: Request) -> None:
        """Answer in the shard's place."""
        headers: list[tuple[bytes, bytes]] = [(b"content-type", b"application/json")]
        if self.status in _REDIRECTS:
            headers.append((b"location", f"{connection.shard_url}{request.head.path}".encode()))
        if self.retry_after is not None:
            headers.append((b"retry-after", b"%d" % self.retry_after))
        body = b"" if self.status in BODILESS else error_body(self.status)
        await connection.send(Response(self.status, tuple(headers), body).wire())
