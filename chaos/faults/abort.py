"""vLLM as it shuts down or is paused: a 200 with `finish_reason` "abort", a cut answer that looks whole.

NeMo-Gym takes the answer and fails the rollout on the unknown reason.
"""

from typing import Any

import orjson

from ..http1 import Response
from ..scripting import Connection
from .base import Symptom
from .script import AnswerFault


class Abort(AnswerFault):
    """The shard's real answer with each `finish_reason` changed to "abort"; what has none passes unchanged."""

    def symptoms(self) -> frozenset[Symptom]:
        """A whole 200 that no client may use."""
        return frozenset({Symptom.WRONG})

    async def on_answer(self, connection: Connection, response: Response) -> None:
        """Send the aborted one."""
        await connection.send(Response(response.status, response.headers, _aborted(response.body)).wire())


def _aborted(body: bytes) -> bytes:
    """A chat or text completion as an aborted one; any other body as it is."""
    try:
        answer: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    if not isinstance(answer, dict) or not answer.get("choices"):
        return body
    for choice in answer["choices"]:
        choice["finish_reason"] = "abort"
    return orjson.dumps(answer)
