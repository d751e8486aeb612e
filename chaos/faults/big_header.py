"""A header line over 8190 bytes, which a tracing or cookie layer adds: NeMo-Gym's HTTP parser refuses the answer."""

from pydantic import Field

from ..scripting import Script
from .base import Symptom
from .script import MoreHeaders, ScriptFault


class BigHeader(ScriptFault):
    """The shard's real answer with one header of `value_bytes` bytes."""

    value_bytes: int = Field(default=9000, gt=8190, description="bytes of the header value")

    def symptoms(self) -> frozenset[Symptom]:
        """A parser with the limits of NeMo-Gym's client refuses it."""
        return frozenset({Symptom.BAD_HTTP})

    def script(self) -> Script:
        """The script."""
        return MoreHeaders(((b"x-trace", b"a" * self.value_bytes),))
