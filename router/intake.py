"""May this request come in? The listener's checks, as plain functions over what is known when the head is whole."""

import re
from dataclasses import dataclass

from .answers import Answer, refusal
from .headers import HeadFilter
from .surface import origin_form, outside, path_of

_REQUEST_LINE = re.compile(rb"(?P<method>[!#$%&'*+.^_`|~0-9A-Za-z-]+) (?P<target>\S+) HTTP/1\.[01]\r?\n")


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """What a client may do. Sizes in bytes, times in seconds."""

    deadline_s: float
    max_body: int
    max_head: int = 64 << 10
    client_idle_s: float = 75.0  # a client that neither sends nor reads for this long is given up
    max_in_flight: int = 1 << 20


def turned_down(method: str, path: str, head: HeadFilter, in_flight: int, limits: ListenerLimits) -> Answer | None:
    """The router's own answer to a request that it does not take; None for one that it takes."""
    if (answer := outside(method, path)) is not None:
        return answer
    if head.size > limits.max_head:
        return head_too_large(limits)
    if head.content_length > limits.max_body:
        return body_too_large(limits)
    if head.expect not in {b"", b"100-continue"}:
        return refusal(417, "expectation_failed", "the only expectation served is 100-continue")
    if in_flight >= limits.max_in_flight:
        return refusal(500, "router_exhausted", f"the router already has {limits.max_in_flight} requests under way")
    return None


def body_too_large(limits: ListenerLimits) -> Answer:
    """The answer to a body over the limit."""
    return refusal(413, "body_too_large", f"the body is larger than {limits.max_body >> 20} MiB (--max-body-mib)")


def head_too_large(limits: ListenerLimits) -> Answer:
    """The answer to a head over the limit."""
    return refusal(431, "header_too_large", f"the head is larger than {limits.max_head >> 10} KiB (max_header_kib)")


def malformed() -> Answer:
    """The answer to what is not HTTP."""
    return refusal(422, "malformed_request", "the request is not valid HTTP")


def unknown_method(data: bytes) -> Answer:
    """The answer to a request, from its first byte on, with a method that the parser does not know."""
    line = _REQUEST_LINE.match(data)
    if line is None:
        return malformed()
    return outside(line["method"].decode("latin-1"), path_of(origin_form(line["target"]))) or malformed()


def upgrade_refused() -> Answer:
    """The answer to a request for another protocol."""
    return refusal(422, "upgrade_refused", "the router speaks HTTP/1.1 only")


def too_slow() -> Answer:
    """The answer to a request that stopped coming."""
    return refusal(408, "slow_client", "the request stopped coming")


def internal_error() -> Answer:
    """The answer when the router itself has a bug."""
    return refusal(500, "router_error", "unexpected error inside the router")
