"""Reading an upstream answer: which outcome it is. Pure, and strict where Gym's client is strict.

Gym reads answers with orjson and offers gzip and deflate only, so that is what is checked here. A body is parsed,
always: framing can be perfect around half a JSON document, and `finish_reason` is inside.
"""

import zlib
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import orjson

from .failures import Outcome
from .headers import READABLE_CODINGS, RawHeaders, header

BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
PAYLOAD_KEYS = ("choices", "data", "tokens", "output")


def judge_status(status: int) -> Outcome:
    """The outcome that a status alone decides; a 2xx is SERVED until its body is read."""
    if status in BUSY:
        return Outcome.BUSY
    match status // 100:
        case 2:
            return Outcome.SERVED
        case 3:
            return Outcome.REDIRECTED
        case 4:
            return Outcome.REJECTED
        case _:
            return Outcome.ERRED


def judge(status: int, headers: RawHeaders, body: bytes, max_body: int) -> tuple[Outcome, str]:
    """The outcome of a complete, non-streamed answer, and why."""
    outcome = judge_status(status)
    if outcome is not Outcome.SERVED:
        return outcome, f"the backend answered {status}"
    try:
        coding = header(headers, b"content-encoding")
        document = orjson.loads(decoded(body, coding, max_body) if coding else body)
    except (ValueError, zlib.error) as error:
        return Outcome.INVALID, f"{status} with an unreadable body of {len(body)} bytes: {_brief(error)}"
    return judge_document(document)


def judge_document(document: Any) -> tuple[Outcome, str]:
    """The outcome of a 2xx whose body is JSON."""
    if not isinstance(document, dict):
        return Outcome.INVALID, "the body is JSON but not an object"
    if document.get("error") is not None and not any(key in document for key in PAYLOAD_KEYS):
        return Outcome.INVALID, "a 2xx that carries an error object"
    choices = document.get("choices")
    if isinstance(choices, list) and was_aborted(choices):
        return Outcome.ABORTED, 'finish_reason is "abort"'
    return Outcome.SERVED, ""


def was_aborted(choices: Sequence[Any]) -> bool:
    """Whether vLLM cut one of the choices short because it was shutting down or paused."""
    return any(isinstance(choice, dict) and choice.get("finish_reason") == "abort" for choice in choices)


def decoded(body: bytes, codings: str, max_body: int) -> bytes:
    """A copy of `body` without its content codings, which are undone from the last to the first.

    Raises ValueError or zlib.error for what the client could not read, or would not hold.
    """
    for coding in reversed([token.strip().lower() for token in codings.split(",")]):
        if coding not in READABLE_CODINGS:
            raise ValueError(f"content coding {coding[:20]!r}")
        if coding in {"", "identity"}:
            continue
        body = _inflated(body, coding, max_body)
    return body


def _inflated(body: bytes, coding: str, max_body: int) -> bytes:
    # "deflate" is sent with a zlib header or raw; the low nibble of the first byte tells which, as aiohttp does.
    raw_deflate = coding == "deflate" and bool(body) and body[0] & 0x0F != zlib.DEFLATED
    wbits = -zlib.MAX_WBITS if raw_deflate else zlib.MAX_WBITS | (32 if coding != "deflate" else 0)
    inflater = zlib.decompressobj(wbits)
    plain = inflater.decompress(body, max_body)
    if inflater.unconsumed_tail:
        raise ValueError("inflates to more than the answer limit")
    if not inflater.eof:
        raise ValueError("compressed body is cut short")
    return plain


def _brief(error: Exception) -> str:
    return str(error).partition(":")[0][:80] or type(error).__name__
