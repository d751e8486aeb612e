"""What one client version does with every answer: the contract as a value, and the shipped tables.

Only values and their JSON form belong here. How a table is measured is in `learn`, what a
table means for a configuration is in `status` and `nemo_rl`.
"""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib import resources
from types import MappingProxyType
from typing import Any

CLIENT = "nemo-gym"
# What to judge by when nobody names a version: a router cannot know which client will call it, and no shipped table of
# that client retries more without bound than this one, nor waits less for an answer.
STRICTEST: Mapping[str, str] = {CLIENT: "0.4.0", "openai": "3.57.0", "verifiers": "0.4.0"}
STATUSES = range(200, 600)


class Handling(StrEnum):
    """How a call ends that keeps getting the same answer."""

    RETURNED = "returned"
    RAISED = "raised"
    UNBOUNDED = "unbounded"
    HANGS = "hangs"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One row of the contract.

    `tries` counts the requests that the server sees, redirect hops included; it is None when
    there is no end to them. `exception` is the class name that the caller gets.
    """

    handling: Handling
    tries: int | None
    exception: str | None = None

    def __str__(self) -> str:
        if self.handling is Handling.UNBOUNDED:
            return "retried without bound"
        if self.handling is Handling.HANGS:
            return f"hangs (requests seen: {self.tries})"
        times = "1 try" if self.tries == 1 else f"{self.tries} tries"
        raised = f": {self.exception}" if self.exception else ""
        return f"{self.handling} after {times}{raised}"


@dataclass(frozen=True, slots=True)
class Timing:
    """The client's own clocks, in seconds, as it comes.

    `silence_s` and `connect_s` end a try (None: nothing does). `pauses_s` are the longest waits before the second
    try, the third, and so on; `obeys_retry_after_s` is the longest `Retry-After` that takes their place. `idle_s` is
    how long an idle connection is kept for the next request.
    """

    silence_s: float | None = None
    connect_s: float | None = None
    pauses_s: tuple[float, ...] = ()
    idle_s: float = 0.0
    obeys_retry_after_s: float = 0.0


UNTIMED = Timing()


@dataclass(frozen=True)
class Contract:
    """What `client` at `version` does with each status 200..599 and each transport fault.

    `measured_with` names the versions under the client at the time, because the limits on
    headers and the parser's verdicts are theirs.
    """

    client: str
    version: str
    statuses: Mapping[int, Behaviour]
    faults: Mapping[str, Behaviour]
    timing: Timing = UNTIMED
    measured_with: Mapping[str, str] = field(default_factory=dict)

    def status(self, status: int) -> Behaviour:
        """Behaviour for one status; ValueError for a number that is not in the table."""
        try:
            return self.statuses[status]
        except KeyError:
            raise ValueError(f"status {status} is not in the {self.client} {self.version} table (200..599)") from None

    def unbounded_statuses(self) -> frozenset[int]:
        """Statuses that the client retries for ever."""
        return frozenset(s for s, b in self.statuses.items() if b.handling is Handling.UNBOUNDED)


@dataclass(frozen=True, slots=True)
class Difference:
    """One row on which two tables disagree; None where a table has no such row."""

    name: str
    expected: Behaviour | None
    measured: Behaviour | None


def differences(expected: Contract, measured: Contract) -> list[Difference]:
    """Rows that differ, statuses first, for the rows that were measured."""
    return [
        *_differing(
            {f"status {s}": b for s, b in expected.statuses.items()},
            {f"status {s}": b for s, b in measured.statuses.items()},
        ),
        *_differing(expected.faults, measured.faults),
    ]


def _differing(expected: Mapping[str, Behaviour], measured: Mapping[str, Behaviour]) -> Iterator[Difference]:
    for name, behaviour in measured.items():
        if expected.get(name) != behaviour:
            yield Difference(name, expected.get(name), behaviour)


def shipped_versions(client: str = CLIENT) -> list[str]:
    """Versions of `client` that a table is shipped for, oldest first."""
    prefix = f"{client}-"
    names = (entry.name for entry in resources.files(__package__).joinpath("contracts").iterdir())
    versions = (n.removeprefix(prefix).removesuffix(".json") for n in names if n.startswith(prefix))
    return sorted(versions, key=_version_key)


def shipped_clients() -> list[str]:
    """Clients that tables are shipped for."""
    return list(STRICTEST)


@functools.cache
def load_contract(client: str = CLIENT, version: str | None = None) -> Contract:
    """The shipped table of `version`, or the strictest one when it is None.

    Raises LookupError, listing what is shipped, for a client or version without a table.
    """
    if client not in STRICTEST:
        raise LookupError(f"no contract table for {client}; shipped: {', '.join(STRICTEST)}")
    asked = version or STRICTEST[client]
    if asked not in shipped_versions(client):
        known = ", ".join(f"{client} {v}" for v in shipped_versions(client))
        raise LookupError(f"no contract table for {client} {asked}; shipped: {known}")
    text = resources.files(__package__).joinpath("contracts", f"{client}-{asked}.json").read_text("utf-8")
    return contract_from_json(text)


def contract_of(requirement: str) -> Contract:
    """The table that "openai" or "openai==3.57.0" asks for, as `load_contract` gives it."""
    client, _, version = requirement.partition("==")
    return load_contract(client.strip(), version.strip() or None)


def contract_from_json(text: str) -> Contract:
    """Read a table; ranges such as "430-499" stand for each status in them."""
    raw = json.loads(text)
    statuses = {s: _behaviour(row) for span, row in raw["statuses"].items() for s in _span(span)}
    faults = {name: _behaviour(row) for name, row in raw["faults"].items()}
    return Contract(
        client=raw["client"],
        version=raw["version"],
        statuses=MappingProxyType(statuses),
        faults=MappingProxyType(faults),
        timing=Timing(**{**raw["timing"], "pauses_s": tuple(raw["timing"]["pauses_s"])}),
        measured_with=MappingProxyType(raw.get("measured_with", {})),
    )


def contract_to_json(contract: Contract) -> str:
    """Write a table, one row a line, equal neighbouring statuses joined into a range."""
    spans = {span: _row(behaviour) for span, behaviour in _spans(contract.statuses)}
    faults = {name: _row(behaviour) for name, behaviour in contract.faults.items()}
    head = {"client": contract.client, "version": contract.version}
    fields = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    fields.append(f'  "measured_with": {json.dumps(dict(contract.measured_with))}')
    fields.append(f'  "timing": {json.dumps(asdict(contract.timing))}')
    fields.append(f'  "statuses": {_lines(spans)}')
    fields.append(f'  "faults": {_lines(faults)}')
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _lines(rows: Mapping[str, Mapping[str, Any]]) -> str:
    body = ",\n".join(f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    return "{\n" + body + "\n  }"


def _behaviour(row: Mapping[str, Any]) -> Behaviour:
    return Behaviour(Handling(row["handling"]), row.get("tries"), row.get("exception"))


def _row(behaviour: Behaviour) -> dict[str, Any]:
    row = {"handling": behaviour.handling.value, "tries": behaviour.tries}
    return {key: value for key, value in (row | {"exception": behaviour.exception}).items() if value is not None}


def _span(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _spans(statuses: Mapping[int, Behaviour]) -> Iterator[tuple[str, Behaviour]]:
    """Join neighbours with one behaviour: (200, a), (201, a), (202, b) -> ("200-201", a), ("202", b)."""
    run: list[int] = []
    for status in sorted(statuses):
        if run and (status != run[-1] + 1 or statuses[status] != statuses[run[0]]):
            yield _span_text(run), statuses[run[0]]
            run = []
        run.append(status)
    if run:
        yield _span_text(run), statuses[run[0]]


def _span_text(run: list[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"


def _version_key(version: str) -> list[tuple[int, int, str]]:
    """0.10.0 is newer than 0.9.1, and 0.5.0rc1 is older than 0.5.0."""
    parts = (re.fullmatch(r"(\d*)(.*)", part) for part in version.split("."))
    return [(int(m[1] or 0), -1 if m[2] else 0, m[2]) for m in parts if m]
