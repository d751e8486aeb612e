"""A header line over 8190 bytes, which a tracing or cookie layer adds: NeMo-Gym's HTTP parser refuses the answer."""

from pydantic import Field

from gymproof.validators.raw_answer import LINE_LIMIT

from ..http1 import Headers, Response
from .script import HeadersFault


class BigHeader(HeadersFault):
    """The shard's real answer with one header of `value_bytes` bytes."""

    value_bytes: int = Field(default=9000, gt=LINE_LIMIT, description="bytes of the header value")

    def more_headers(self, _response: Response) -> Headers:
        """One line."""
        return ((b"x-trace", b"a" * self.value_bytes),)
