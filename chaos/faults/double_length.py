"""A doubled Content-Length, as a relay makes that copies headers and adds its own: parsers refuse the answer."""

from ..http1 import Headers, Response
from .script import HeadersFault


class DoubleLength(HeadersFault):
    """The shard's real answer with its Content-Length twice."""

    def more_headers(self, response: Response) -> Headers:
        """The line once more."""
        return ((b"content-length", b"%d" % len(response.body)),)
