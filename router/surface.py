"""What the router serves: Gym's endpoints, and why anything else is not forwarded."""

import re
from collections.abc import Mapping

from .answers import Answer, refusal

SURFACE: Mapping[str, frozenset[str]] = {
    "/v1/chat/completions": frozenset({"POST"}),
    "/v1/completions": frozenset({"POST"}),
    "/v1/responses": frozenset({"POST"}),
    "/tokenize": frozenset({"POST"}),
    "/v1/models": frozenset({"GET"}),
}
# These act on one engine. Spread over a fleet by a balancer, they would hit a random one.
ENGINE_PATHS = frozenset({
    "/metrics", "/health", "/load", "/version", "/pause", "/resume", "/sleep", "/wake_up", "/is_paused", "/is_sleeping",
    "/reset_prefix_cache", "/update_weights", "/init_weight_transfer_engine", "/start_weight_update",
    "/finish_weight_update", "/collective_rpc", "/abort_requests", "/server_info", "/weight_info",
})  # fmt: skip


def origin_form(target: bytes) -> bytes:
    """A request target without the scheme and the authority that it may have: path and query."""
    scheme, mark, rest = target.partition(b"://")
    if not mark or scheme.lower() not in {b"http", b"https"}:
        return target
    authority = re.split(rb"[/?]", rest, maxsplit=1)[0]
    path = rest[len(authority) :]
    return path if path.startswith(b"/") else b"/" + path


def path_of(target: bytes) -> str:
    """The path in a request target in origin form."""
    return target.partition(b"?")[0].decode("latin-1")


def outside(method: str, path: str) -> Answer | None:
    """The refusal of a request that is not in the surface; None for one that is. `path` has no query."""
    methods = SURFACE.get(path)
    if methods is None:
        if path in ENGINE_PATHS:
            where = "it belongs to one engine: call the engine's own address, or the router's admin port for the router"
        else:
            where = f"the router serves {', '.join(SURFACE)}"
        return refusal(404, "not_found", f"not forwarded: {where}")
    if method not in methods:
        allowed = ", ".join(sorted(methods))
        return refusal(405, "method_not_allowed", f"this path takes {allowed}", (("Allow", allowed),))
    return None
