"""What a run recorded: append-only, plain values, judged after the run and by nothing else.

Only records belong here, and how they become JSON lines and come back. Times are `time.monotonic()` seconds, which
all processes of one Linux machine share. A fault is recorded when it strikes and again when it is healed: the later
record of a window takes the place of the earlier one.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import TypeAdapter, ValidationError


class Ending(StrEnum):
    """How one HTTP exchange ended, as seen on the wire."""

    COMPLETE = "complete"  # one whole response
    TRUNCATED = "truncated"  # head seen, then the connection ended inside the body
    NO_ANSWER = "no_answer"  # the connection ended before the response head was whole
    REFUSED = "refused"  # nothing listened
    BAD_HTTP = "bad_http"  # bytes that are no HTTP response, or more bytes than one response
    CLIENT_LEFT = "client_left"  # the client closed first
    PENDING = "pending"  # still open when the run ended


class Outcome(StrEnum):
    """What a client made of a call, all of its own retries included."""

    RETURNED = "returned"
    RAISED = "raised"
    CANCELLED = "cancelled"  # given up by the harness: the client would have gone on


class Delivery(StrEnum):
    """How a shard's work on a request ended."""

    ANSWERED = "answered"
    CANCELLED = "cancelled"  # the peer closed its connection first
    RUNNING = "running"  # no end was recorded: the shard died, was stopped, or still works


@dataclass(frozen=True, slots=True)
class Attempt:
    """One HTTP request of a client and what came back, recorded between the client and the router."""

    call: str  # the tag in the request's messages, "" when it carries none
    path: str
    started: float
    ended: float | None
    ending: Ending
    status: int | None = None
    request_sha256: str = ""
    response_sha256: str = ""
    response_bytes: int = 0
    reason: str = ""  # X-Router-Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a client: an attempt and its retries."""

    call: str
    path: str
    rollout: str
    started: float
    ended: float | None
    outcome: Outcome
    error: str = ""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One multi-turn rollout. It is lost unless every turn of it returned a usable answer."""

    rollout: str
    phase: str  # "baseline", "fault" or "recovery"
    started: float
    ended: float | None
    turns: int
    turns_done: int
    error: str = ""

    @property
    def completed(self) -> bool:
        """Whether no turn is missing."""
        return self.turns_done == self.turns


class Lease(StrEnum):
    """What became of the blocks that a prefill leg left behind."""

    NONE = "none"  # it left none
    PINNED = "pinned"  # they were still kept at the end
    READ = "read"
    REJECTED = "rejected"  # the decode server told that it will not come
    EXPIRED = "expired"
    LOST = "lost"  # with the process that kept them


@dataclass(frozen=True, slots=True)
class Served:
    """One request that reached a shard. Of a leg of two `request_sha256` is without the transfer parameters."""

    shard: int
    call: str
    path: str
    started: float
    ended: float | None
    ending: Delivery
    status: int | None = None
    request_sha256: str = ""
    response_sha256: str = ""
    leg: str = ""  # "prefill" or "decode"
    request_id: str = ""  # X-Request-Id, of a leg
    transfer: str = ""  # what the blocks are known by that a decode server fetches
    lease: Lease = Lease.NONE


@dataclass(frozen=True, slots=True)
class FaultWindow:
    """One fault on some shards (none: the fault was on the router or the clients) and whether it was seen to act."""

    kind: str
    layer: str
    shards: tuple[int, ...]
    began: float
    healed: float | None
    acted: bool
    detail: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)  # as the scenario gave them, defaults included

    def follows(self, earlier: "FaultWindow") -> bool:
        """Whether this is a later record of the same window."""
        same = (self.kind, self.shards, self.began) == (earlier.kind, earlier.shards, earlier.began)
        return same and earlier.healed is None


@dataclass(frozen=True, slots=True)
class ShardReport:
    """A shard as it was found after the run."""

    shard: int
    same_process: bool
    healthy: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Whether rollouts completed, and every shard served again, after the last fault was healed."""

    healed: float
    recovered: float | None
    serving: tuple[int, ...]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the run promised: seconds and counts that the checkers compare with."""

    shards: int
    deadline_s: float
    prefill: int = 0  # so many of the shards, the first ones, are prefill servers
    answer_within_s: float | None = None  # earlier than the deadline, where a scenario asks for it
    stall_after_s: float = 15.0
    max_attempts: int = 2
    grace_s: float = 1.0  # over the deadline
    cancel_within_s: float = 1.5
    recover_within_s: float = 15.0
    client: str = "nemo-gym"
    client_version: str = ""
    seed: int = 0


Record = Limits | Attempt | Call | Rollout | Served | FaultWindow | ShardReport | Recovery
_KINDS: dict[str, type[Record]] = {
    "limits": Limits,
    "attempt": Attempt,
    "call": Call,
    "rollout": Rollout,
    "served": Served,
    "fault": FaultWindow,
    "shard": ShardReport,
    "recovery": Recovery,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_SHOWN_BYTES = 200  # of a line that cannot be read
_ADAPTERS: dict[str, TypeAdapter[Record]] = {name: TypeAdapter(kind) for name, kind in _KINDS.items()}


@dataclass
class History:
    """All records of one run."""

    limits: Limits
    attempts: list[Attempt] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    rollouts: list[Rollout] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    faults: list[FaultWindow] = field(default_factory=list)
    shards: list[ShardReport] = field(default_factory=list)
    recovery: Recovery | None = None
    unreadable: list[str] = field(default_factory=list)  # lines of its file that are no records, with their numbers
    sink: Callable[["Record"], None] | None = field(default=None, compare=False, repr=False)  # told of each new record

    def records(self) -> Iterator[Record]:
        """Every record, the limits first."""
        yield self.limits
        for group in (self.faults, self.rollouts, self.calls, self.attempts, self.served, self.shards):
            yield from group
        if self.recovery is not None:
            yield self.recovery

    def write(self, path: Path) -> None:
        """Write one JSON object a line."""
        path.write_bytes(b"".join(line_of(record) for record in self.records()))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a history file, be it of a run that was cut off. Raises ValueError if it is none, OSError."""
        records, unreadable = _parse(path.read_bytes())
        limits = [record for record in records if isinstance(record, Limits)]
        if not limits:
            raise ValueError(f"{path}: no 'limits' record: this is no history of a run")
        history = cls(limits[0], unreadable=unreadable)
        for record in records:
            history.add(record)
        return history

    def add(self, record: Record) -> None:
        """Append one record to the list of its kind."""
        match record:
            case Attempt():
                self.attempts.append(record)
            case Call():
                self.calls.append(record)
            case Rollout():
                self.rollouts.append(record)
            case Served():
                self.served.append(record)
            case FaultWindow():
                self.faults = [*(window for window in self.faults if not record.follows(window)), record]
            case ShardReport():
                self.shards.append(record)
            case Recovery():
                self.recovery = record
            case Limits():
                self.limits = record
        if self.sink is not None:
            self.sink(record)


def line_of(record: Record) -> bytes:
    """One record as a line of a history file."""
    return orjson.dumps({"record": _NAMES[type(record)], **dataclasses.asdict(record)}) + b"\n"


def _parse(data: bytes) -> tuple[list[Record], list[str]]:
    """The records, and the lines that are none."""
    records: list[Record] = []
    unreadable: list[str] = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            fields: dict[str, Any] = orjson.loads(line)
            records.append(_ADAPTERS[fields.pop("record")].validate_python(fields))
        except (orjson.JSONDecodeError, ValidationError, KeyError, AttributeError, TypeError):
            unreadable.append(f"{number}: {line[:_SHOWN_BYTES].decode(errors='replace')}")
    return records, unreadable
