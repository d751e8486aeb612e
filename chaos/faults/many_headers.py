"""More than 128 header lines: NeMo-Gym's HTTP parser refuses the answer."""

from pydantic import Field

from gymproof.validators.raw_answer import LINES_LIMIT

from ..http1 import Headers, Response
from .script import HeadersFault


class ManyHeaders(HeadersFault):
    """The shard's real answer with `count` header lines more."""

    count: int = Field(default=150, gt=LINES_LIMIT, description="header lines that are added")

    def more_headers(self, _response: Response) -> Headers:
        """Short lines."""
        return tuple((b"x-trace-%d" % number, b"a") for number in range(self.count))
