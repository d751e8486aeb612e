"""One shard: where it is, its connections, its health record, and the counts that belong to it.

Counts are released by scope and by the object that holds them (`with shard.load:`), so that no way of ending a
request can leave one behind.
"""

from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from .failures import Outcome
from .health import NEVER, Record
from .transport import Pool
from .urls import Endpoint


class Load:
    """A count of requests in flight that is also the scope of one."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def __enter__(self) -> Self:
        self.value += 1
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.value -= 1


@dataclass(slots=True)
class Window:
    """Successes and failures since the last drain."""

    successes: int = 0
    failures: int = 0


@dataclass(slots=True, eq=False)
class Shard:
    """A member of the fleet."""

    endpoint: Endpoint
    record: Record
    pool: Pool
    load: Load = field(default_factory=Load)
    window: Window = field(default_factory=Window)
    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    last_trial: float = NEVER

    @property
    def url(self) -> str:
        """The URL as the user wrote it."""
        return self.endpoint.url

    @property
    def in_flight(self) -> int:
        """Requests that this router has on the shard now."""
        return self.load.value

    def drain(self) -> tuple[int, int]:
        """Successes and failures (strikes) since the last call, which starts a new window."""
        window, self.window = self.window, Window()
        return window.successes, window.failures
