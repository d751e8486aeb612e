"""The answers that the router makes itself: one JSON shape, one status per kind of reply, never a 400.

Gym scores a 400 that mentions `max_tokens` or `context length` as a normal rollout, so none of these is one, and no
message repeats any part of a request.
"""

from dataclasses import dataclass
from http import HTTPStatus

import orjson

from .failures import VERDICTS, Outcome, Reply

REASON_HEADER = "X-Router-Reason"
UPSTREAM_STATUS_HEADER = "X-Router-Upstream-Status"


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer to the client. `Content-Length` is the listener's business."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class Statuses:
    """The configurable numbers."""

    try_again: int = 500
    no_shard: int = 409
    give_up: int = 422

    def of(self, reply: Reply) -> int:
        """The status of a kind of reply that has one."""
        match reply:
            case Reply.TRY_AGAIN:
                return self.try_again
            case Reply.NO_SHARD:
                return self.no_shard
            case Reply.GIVE_UP:
                return self.give_up
            case _:
                raise ValueError(f"{reply} has no status of the router's own")


def error_body(status: int, reason: str, message: str) -> bytes:
    """The OpenAI-style error object as bytes."""
    kind = "router_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    return orjson.dumps({"error": {"message": message, "type": kind, "code": reason, "param": None}})


def refusal(status: int, reason: str, message: str, extra: tuple[tuple[str, str], ...] = ()) -> Answer:
    """An error answer of the router's own."""
    headers = (("Content-Type", "application/json"), (REASON_HEADER, reason), *extra)
    return Answer(status, headers, error_body(status, reason, message))


def failure_answer(
    statuses: Statuses, outcome: Outcome, message: str, *, serving: bool, upstream_status: int | None = None
) -> Answer:
    """The final answer after `outcome`: what its row says, or the no-shard answer when no shard may serve any more."""
    verdict = VERDICTS[outcome]
    reply, reason = verdict.reply, verdict.reason
    if reply is Reply.TRY_AGAIN and not serving:
        reply, reason = Reply.NO_SHARD, VERDICTS[Outcome.NO_SHARD].reason
    extra = () if upstream_status is None else ((UPSTREAM_STATUS_HEADER, str(upstream_status)),)
    return refusal(statuses.of(reply), reason, message, extra)


def error_event(reason: str, message: str) -> bytes:
    """The server-sent event that ends a stream which cannot be completed."""
    return b"data: " + error_body(HTTPStatus.INTERNAL_SERVER_ERROR, reason, message) + b"\n\n"
