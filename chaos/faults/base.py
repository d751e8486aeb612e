"""What a fault is: fields that are its parameters, one way to do harm, one way to heal it.

Each fault has a file of its own beside this one and a row in `FAULTS` (`chaos/faults/__init__.py`).
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from ..interposer import Interposer
    from ..toxiproxy import ToxicProxy


class Layer(StrEnum):
    """Where a fault acts, and so which hop has to stand between the router and the shard."""

    PROCESS = "process"  # on the shard's processes: the router talks to the shard itself
    TOXIC = "toxic"  # in Toxiproxy
    SCRIPT = "script"  # in a scripted socket that relays until told otherwise
    ROUTER = "router"  # on the router under test
    CLIENT = "client"  # other clients that misbehave


class Symptom(StrEnum):
    """What one small generation request through a shard's route shows to a witness."""

    OK = "ok"
    SLOW = "slow"  # a whole and right answer, but late
    STATUS = "status"  # a whole answer that is no 200
    WRONG = "wrong"  # a whole 200 that is not the answer
    REFUSED = "refused"
    CLOSED = "closed"  # FIN before a whole head
    RESET = "reset"  # RST before a whole head
    TRUNCATED = "truncated"  # FIN or RST inside the body
    SILENT = "silent"  # no whole answer within the witness's patience
    BAD_HTTP = "bad_http"


class ShardProcess(Protocol):
    """A shard's process tree: an API server and the engine that it feeds."""

    index: int
    url: str

    def signal(self, process: str, signum: int) -> None:
        """Send a signal to "server", "engine" or "group"; an already ended process is no error."""

    def kill_node(self) -> Awaitable[None]:
        """Lose the machine that it runs on, with all that is there; an already lost one is no error."""

    def ensure_ready(self, within_s: float) -> Awaitable[None]:
        """Resume it if it is stopped, start it again on the same port if it is dead, and wait until it serves."""


@dataclass(frozen=True)
class Target:
    """One shard and the hops in front of it; a hop that no fault of the scenario needs is None."""

    shard: ShardProcess
    toxics: "ToxicProxy | None" = None
    interposer: "Interposer | None" = None


class Fault(BaseModel):
    """A fault: its parameters come from the scenario file, and an unknown one is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    layer: ClassVar[Layer]

    def symptoms(self) -> frozenset[Symptom]:
        """What a witness may see on a new connection while the fault acts."""
        raise NotImplementedError

    def pooled_symptoms(self) -> frozenset[Symptom]:
        """What it may see on a connection that was there, and had an answer, before the fault."""
        return self.symptoms()

    async def inject(self, target: Target) -> None:
        """Do the harm to one shard. Returns when it is done, not when it has been noticed."""
        raise NotImplementedError

    async def heal(self, target: Target) -> None:
        """Undo it. Called in `finally`, also when `inject` failed half-way, and may be called twice."""
        raise NotImplementedError


class RouterHandle(Protocol):
    """The router under test, as far as a fault may touch it."""

    async def stop(self, signum: int) -> None:
        """End its process by a signal and wait for the end."""

    async def start(self) -> None:
        """Start it on the same port and wait until it answers."""


class RouterFault(Fault):
    """A fault on the router or on its clients: it strikes once, and when `strike` returns it is over."""

    async def strike(self, router: RouterHandle, entry_url: str) -> str:
        """Do it, and say what was done. `entry_url` is where clients meet the router. Raises if it did not act."""
        raise NotImplementedError
