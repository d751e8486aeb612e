"""No status that the client retries without end or takes for a success, nor one that gives up too early."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus

from gymproof.validators import Behaviour, Contract, Handling
from gymproof.validators.contract import CLIENT

from ..faults.base import Layer
from ..history import Attempt, History, Served
from .base import Verdict, unless
from .evidence import by_call, contract_of, could_serve, overlaps, show

_REDIRECTS, _BAD_REQUEST = HTTPStatus.MULTIPLE_CHOICES, HTTPStatus.BAD_REQUEST


@dataclass(frozen=True, slots=True)
class _Seen:
    """One answer and what there is to know about it."""

    status: int
    behaviour: Behaviour | None  # None: a number outside the contract, as no HTTP status is
    client: str
    untraced: bool  # of a call with a tag, and no shard answered that call with this status
    spare: bool  # some shard had no fault in the whole run


def _endless(seen: _Seen) -> bool:
    return seen.behaviour is not None and seen.behaviour.handling is Handling.UNBOUNDED


def _final(seen: _Seen) -> bool:
    return seen.behaviour is not None and seen.behaviour.tries == 1 and seen.status != HTTPStatus.OK


class StatusFlaw(StrEnum):
    """What may be wrong with a status, gravest first."""

    UNKNOWN = "no status that HTTP knows"
    ENDLESS = "retried without bound"
    REDIRECT = "a redirect leads the client past the router"
    UNTRACED = "a success that no shard gave"
    SCORED = "a 400 of the router's own, which Gym may score as a rollout"
    EARLY = "gives up while a shard without a fault could serve"


# The first rule that applies names the flaw. What none of them names is safe.
_FLAWS: Sequence[tuple[StatusFlaw, Callable[[_Seen], bool]]] = (
    (StatusFlaw.UNKNOWN, lambda seen: seen.behaviour is None),
    (StatusFlaw.ENDLESS, _endless),
    (StatusFlaw.REDIRECT, lambda seen: _REDIRECTS <= seen.status < _BAD_REQUEST),
    (StatusFlaw.UNTRACED, lambda seen: seen.status < _REDIRECTS and seen.untraced),
    (StatusFlaw.SCORED, lambda seen: seen.client == CLIENT and seen.status == _BAD_REQUEST and seen.untraced),
    (StatusFlaw.EARLY, lambda seen: _final(seen) and seen.untraced and seen.spare),
)


def check(history: History) -> Verdict:
    """Judge each status by the contract of the run's client, and by what shards answered to the same call."""
    offences = [f"{flaw}: {show(attempt)}" for flaw, attempt in flaws(history)]
    return unless(offences, "unsafe statuses", held=f"{len(history.attempts)} attempts with safe statuses")


def flaws(history: History) -> Iterator[tuple[StatusFlaw, Attempt]]:
    """Each attempt whose status is unsafe, and the flaw of it."""
    contract = contract_of(history)
    served = by_call(history.served)
    for attempt in history.attempts:
        seen = _see(history, attempt, served.get((attempt.call, attempt.path), ()), contract)
        flaw = seen and next((name for name, applies in _FLAWS if applies(seen)), None)
        if flaw:
            yield flaw, attempt


def _see(history: History, attempt: Attempt, served: Sequence[Served], contract: Contract) -> _Seen | None:
    if attempt.status is None:
        return None
    return _Seen(
        status=attempt.status,
        behaviour=contract.statuses.get(attempt.status),
        client=contract.client,
        untraced=bool(attempt.call) and not _given(history, attempt, served),
        spare=bool(could_serve(history)),
    )


def _given(history: History, attempt: Attempt, served: Sequence[Served]) -> bool:
    """Whether a shard gave this status, or a scripted socket in its place a 4xx, which is right to pass on."""
    if any(one.status == attempt.status for one in served):
        return True
    return f"{attempt.status}".startswith("4") and any(
        window.layer == Layer.SCRIPT
        and window.kind == "status"
        and window.parameters.get("status") == attempt.status
        and overlaps(window, attempt.started, attempt.ended)
        for window in history.faults
    )
