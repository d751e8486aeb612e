"""Which requests are served in two legs, and the bodies of these legs. Pure: bytes in, bytes out.

A prefill server computes the prompt and keeps its KV cache for a decode server, which fetches it. Bodies are never
serialised anew: members are appended to the client's bytes, and in JSON as vLLM reads it the last of a name wins.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson

from .conversation import without_ids

PARAMS = "kv_transfer_params"
ONE_TOKEN: Mapping[str, tuple[str, ...]] = {  # the field that is always set comes first
    "/v1/chat/completions": ("max_tokens", "max_completion_tokens"),
    "/v1/completions": ("max_tokens",),
    "/v1/responses": ("max_output_tokens",),
}
# The flags that make vLLM keep the blocks; it reads all others with `.get`.
KEEP_FOR_DECODE = {"do_remote_decode": True, "do_remote_prefill": False}
_DECODER = json.JSONDecoder()
_GAP = re.compile(r"[ \t\n\r,:]*")


class Plan(Enum):
    """How a request is served."""

    TWO_LEGS = "two_legs"
    DECODE_ONLY = "decode_only"
    REFUSED = "refused"  # it names hosts that a decode server would connect to


class Missing(Enum):
    """Why a whole answer of a prefill server is of no use to a decode server."""

    NO_PARAMS = "missing_params"  # what a prefill server without a connector answers too
    PUSH_MODE = "push_mode"  # both legs would have to be sent at once


@dataclass(frozen=True, slots=True)
class Legs:
    """What becomes of one request. `prefill` is the prefill leg's body, and there only with two legs."""

    plan: Plan
    prefill: bytes = b""


def plan_legs(path: str, body: bytes) -> Legs:
    """How the request is served, from its path and its body. What is no JSON object is the engine's to refuse."""
    limits = ONE_TOKEN.get(path)
    document, spliceable = _read(body) if limits is not None else ({}, False)
    if limits is None or document.get(PARAMS) is not None:
        return Legs(Plan.DECODE_ONLY if limits is None else Plan.REFUSED)
    if not spliceable or any(needs_one_server(document) for needs_one_server in ONE_SERVER.values()):
        return Legs(Plan.DECODE_ONLY)
    return Legs(Plan.TWO_LEGS, with_members(body, _prefill_members(document, limits)))


def _prefill_members(document: Mapping[str, Any], limits: tuple[str, ...]) -> dict[str, bytes]:
    first, *others = limits
    members: dict[str, Any] = {first: 1, **{name: 1 for name in others if document.get(name) is not None}}
    minimum = document.get("min_tokens")
    if isinstance(minimum, int) and minimum > 1:  # more than max_tokens is a 400
        members["min_tokens"] = 1
    members["stream"] = False  # only a whole answer carries the parameters
    if document.get("stream_options") is not None:
        members["stream_options"] = None
    members[PARAMS] = KEEP_FOR_DECODE
    return {name: orjson.dumps(value) for name, value in members.items()}


def _several_prompts(document: Mapping[str, Any]) -> bool:
    prompt = document.get("prompt")
    return isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)


# Only the first of several sequences would get its parameters; what needs the whole prompt's logits computes it again
# on the decode server; a stored response or a job is on the server that made it.
ONE_SERVER: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "n": lambda document: document.get("n") not in (None, 1),
    "best_of": lambda document: document.get("best_of") not in (None, 1),
    "use_beam_search": lambda document: bool(document.get("use_beam_search")),
    "prompt": _several_prompts,
    "prompt_embeds": lambda document: document.get("prompt_embeds") is not None,
    "echo": lambda document: bool(document.get("echo")),
    "prompt_logprobs": lambda document: document.get("prompt_logprobs") is not None,
    "previous_response_id": lambda document: document.get("previous_response_id") is not None,
    "background": lambda document: bool(document.get("background")),
}


def read_transfer(answer: bytes) -> bytes | Missing:
    """The transfer parameters in a prefill server's answer, byte for byte: they are opaque, but for the mode.

    Raises ValueError for what is no JSON object.
    """
    found = member(answer, PARAMS)
    value = json.loads(found or b"null")
    if found is None or not isinstance(value, dict) or not value:
        return Missing.NO_PARAMS
    return Missing.PUSH_MODE if value.get("transfer_mode") == "push" else found


def member(document: bytes, name: str) -> bytes | None:
    """The bytes of the value of a JSON object's member, of the last of that name. Raises ValueError."""
    text = document.decode()
    position, found = _past_gap(text, text.index("{") + 1), None
    while position < len(text) and text[position] != "}":
        key, position = _DECODER.raw_decode(text, position)
        start = _past_gap(text, position)
        _, end = _DECODER.raw_decode(text, start)
        if key == name:
            found = text[start:end].encode()
        position = _past_gap(text, end)
    return found


def _past_gap(text: str, position: int) -> int:
    gap = _GAP.match(text, position)
    return position if gap is None else gap.end()


def with_members(body: bytes, members: Mapping[str, bytes]) -> bytes:
    """A JSON object's bytes with `members` (name: value as JSON) appended. Its own bytes stay as they are."""
    open_body = body.rstrip()[:-1]
    comma = b"" if open_body.rstrip().endswith(b"{") and not orjson.loads(body) else b","
    added = b",".join(b"%b:%b" % (orjson.dumps(name), value) for name, value in members.items())
    return b"".join((open_body, comma, added, b"}"))


def without_lines(lines: bytes, names: frozenset[bytes]) -> bytes:
    """Header lines but for those of some (lower-case) names."""
    kept = [line for line in lines.splitlines(keepends=True) if line.partition(b":")[0].lower() not in names]
    return b"".join(kept)


def _read(body: bytes) -> tuple[dict[str, Any], bool]:
    """The object in `body`, empty if there is none, and whether members may be appended to its bytes.

    Python's parser, which vLLM uses, takes NaN and UTF-16 too: such a body is read for what it must not contain.
    """
    try:
        document, spliceable = orjson.loads(without_ids(body)), True
    except orjson.JSONDecodeError:
        try:
            document, spliceable = json.loads(body), False
        except (ValueError, RecursionError):
            return {}, False
    return (document, spliceable) if isinstance(document, dict) else ({}, False)
