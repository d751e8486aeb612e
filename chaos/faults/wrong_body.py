"""A 200 whose framing is right and whose body is not the answer: only a look inside gives it away."""

from typing import Literal

from ..http1 import Response
from ..scripting import Connection
from .base import Symptom
from .script import AnswerFault, error_body

Body = Literal["empty", "half_json", "html", "error"]
_HTML = b"<!DOCTYPE html><html><body><h1>Down for maintenance</h1></body></html>"


class WrongBody(AnswerFault):
    """The shard's real 200 with nothing, half its JSON, a page or an error object in place of its body."""

    body: Body

    def symptoms(self) -> frozenset[Symptom]:
        """A whole 200 without the answer."""
        return frozenset({Symptom.WRONG})

    async def on_answer(self, connection: Connection, response: Response) -> None:
        """Send the other body."""
        half, _ = response.halves()
        bodies: dict[Body, bytes] = {"empty": b"", "half_json": half, "html": _HTML, "error": error_body(500)}
        content_type = b"text/html" if self.body == "html" else b"application/json"
        headers = ((b"content-type", content_type),)
        await connection.send(Response(response.status, headers, bodies[self.body]).wire())
