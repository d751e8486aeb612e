"""Bodies pass through byte for byte: what a client sent is what a shard read, what a shard answered is what came back.

Of two legs that is the decode leg, without the transfer parameters that a router adds to it; the prefill leg asks for
one token, and is no answer to a client, but where it was refused. A fault on the way may change an answer, and a right
router lets none of those through, so no fault is an excuse here.
"""

from collections.abc import Iterator, Sequence

from ..faults.base import Layer
from ..history import Attempt, Ending, History, Served
from .base import Verdict, unknown, unless
from .evidence import by_call, faults_on, show

_FIRST_ERROR, _FIRST_SERVER_ERROR = 400, 500


def check(history: History) -> Verdict:
    """Compare the SHA-256 of request and response entities at the client's side and at the shards."""
    attempts, served = by_call(history.attempts), by_call(history.served)
    offences: list[str] = []
    compared = 0
    for key in attempts.keys() & served.keys():
        compared += 1
        offences += _changed_requests(attempts[key], served[key])
    for key, tries in attempts.items():
        offences += _changed_answers(history, tries, served.get(key, ()))
    if not (compared or offences):
        return unknown("no call was seen both at a client and at a shard")
    return unless(sorted(offences), "changed bodies", held=f"the bodies of {compared} calls came through unchanged")


def _changed_requests(attempts: Sequence[Attempt], served: Sequence[Served]) -> Iterator[str]:
    sent = {attempt.request_sha256 for attempt in attempts} - {""}
    for one in served:
        if sent and one.leg != "prefill" and one.request_sha256 and one.request_sha256 not in sent:
            yield f"{one.call} {one.path}: shard {one.shard} read another request than the client sent"


def _changed_answers(history: History, attempts: Sequence[Attempt], served: Sequence[Served]) -> Iterator[str]:
    given = {one.response_sha256 for one in served if not _half(one)} - {""}
    for attempt in attempts:
        if not _passed_through(attempt, served) or attempt.response_sha256 in given:
            continue
        if not any(_died_unheard(history, one) for one in served):
            yield f"no shard gave this answer: {show(attempt)}"


def _half(served: Served) -> bool:
    """Whether an answer is of a prefill leg that has done its work."""
    return served.leg == "prefill" and served.status is not None and served.status < _FIRST_ERROR


def _passed_through(attempt: Attempt, served: Sequence[Served]) -> bool:
    """Whether an attempt's answer claims to be a shard's own."""
    if attempt.ending is not Ending.COMPLETE or attempt.status is None:
        return False
    if attempt.status < _FIRST_ERROR:
        return True
    return attempt.status < _FIRST_SERVER_ERROR and any(one.status == attempt.status for one in served)


def _died_unheard(history: History, served: Served) -> bool:
    """Whether a shard may have answered without living to write it down."""
    return not served.response_sha256 and any(
        window.layer == Layer.PROCESS for window in faults_on(history, served.shard, served.started, served.ended)
    )
