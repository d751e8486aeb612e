"""More than 128 header lines: NeMo-Gym's HTTP parser refuses the answer."""

from pydantic import Field

from ..scripting import Script
from .base import Symptom
from .script import MoreHeaders, ScriptFault


class ManyHeaders(ScriptFault):
    """The shard's real answer with `count` header lines more."""

    count: int = Field(default=150, gt=128, description="header lines that are added")

    def symptoms(self) -> frozenset[Symptom]:
        """A parser with the limits of NeMo-Gym's client refuses it."""
        return frozenset({Symptom.BAD_HTTP})

    def script(self) -> Script:
        """The script."""
        return MoreHeaders(tuple((b"x-trace-%d" % number, b"a") for number in range(self.count)))
