"""Which conversation a request belongs to: from its session header, or else from the messages in its body.

NeMo-Gym names no session, but the messages of a turn are a prefix of the next turn's. So each message is hashed onto
those before it, and a session is known by the hash of what it last sent. Siblings of one task share their first turn:
they are told apart by the first answer. Only what survives a client is hashed: it drops or adds token ids, log
probabilities and reasoning, but keeps roles, texts and tool calls.
"""

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import orjson

from .policies import Turn

BYTES_PER_TOKEN = 4  # of a body: a guess, until an answer says how many tokens there were
COMPLETION_PREFIX = 4096  # characters, or tokens, of a prompt by which a group is told
START = b"conversation"
_TOTAL_TOKENS = re.compile(rb'"total_tokens"\s*:\s*(\d+)')
# NeMo-Gym sends them back with each answer: most of a body, most of the time to parse it, and no part of any name.
_IDS = b'"prompt_token_ids":'
TAIL = 4096  # bytes of an answer in which its usage stands, or else in its head
UNREADABLE = (ValueError, TypeError, RecursionError)  # the last two: deeper nested than can be written again
LIGHT = frozenset({"/tokenize", "/v1/models"})


def turn_of(path: str, session: bytes, body: bytes, knows: Callable[[bytes], bool]) -> Turn:
    """What a request says of its conversation; the body is not read if `knows` says that its session header will do."""
    tokens, light = len(body) // BYTES_PER_TOKEN, path in LIGHT
    named = (b"header:" + session,) if session else ()
    if not body or (named and knows(named[0])):
        return Turn(named, tokens=tokens, light=light)
    keys, group = _read(body)
    return Turn(named or keys, group, tokens, light)


def _read(body: bytes) -> tuple[tuple[bytes, ...], bytes]:
    """The names and the group of what is in a body. A prompt without messages has a group only."""
    try:
        document = orjson.loads(without_ids(body))
        if not isinstance(document, dict):
            return (), b""
        messages = document.get("messages", document.get("input"))
        if isinstance(messages, list):
            return _chain(messages)
        prompt = messages or document.get("prompt")
        group = _hashed(START, prompt[:COMPLETION_PREFIX]) if isinstance(prompt, str | list) and prompt else b""
    except UNREADABLE:
        return (), b""
    return (), group


def without_ids(body: bytes) -> bytes:
    """A JSON document without the prompt token ids of its messages, where they are plain lists of numbers."""
    start, *parts = body.split(_IDS)
    kept = [start]
    for part in parts:
        ids, _, rest = part.partition(b"]")
        if not ids.lstrip().startswith(b"[") or ids.count(b"[") > 1 or b'"' in ids:
            return body
        kept += (_IDS, b"0", rest)
    return b"".join(kept)


def _chain(messages: list[Any]) -> tuple[tuple[bytes, ...], bytes]:
    """The names of a conversation, the longest first, and the hash of its first turn.

    A name is the hash of a prefix that some request has ended with, and that holds an answer; or of the first answer.
    """
    digest, group = START, b""
    keys: list[bytes] = []
    answered = False  # the message before this one is the assistant's
    for message in messages:
        if _is_reasoning(message):
            continue
        by_assistant = _is_answer(message)
        if by_assistant and not group:
            group = digest
        elif group and answered is not by_assistant and (by_assistant or not keys):
            keys.append(digest)
        digest = _hashed(digest, canonical(message))
        answered = by_assistant
    if not group:
        return (), digest
    keys.append(digest)
    return tuple(reversed(keys)), group


def answer_key(turn: Turn, body: bytes) -> bytes:
    """The name of a session after its first answer; empty for any other turn, or where the answer is not to be had."""
    if turn.keys or not turn.group or turn.light or not body:
        return b""
    try:
        document = orjson.loads(body)
        if "choices" in document:
            said = [document["choices"][0]["message"]]
        else:
            said = [item for item in document["output"] if _is_answer(item)]
        digest = turn.group
        for message in said:
            digest = _hashed(digest, canonical(message))
    except (*UNREADABLE, LookupError):
        return b""
    return digest if said else b""


def context_tokens(body: bytes) -> int | None:
    """`usage.total_tokens` of an answer; None if it does not say."""
    found = _TOTAL_TOKENS.search(body, max(0, len(body) - TAIL)) or _TOTAL_TOKENS.search(body, 0, TAIL)
    return None if found is None else int(found[1])


def canonical(message: Any) -> Any:
    """What identifies a message, whatever a client does with the rest of it."""
    if not isinstance(message, dict):
        return message
    calls = message.get("tool_calls")
    return [
        message.get("role") or ("assistant" if _is_answer(message) else None),
        _text(message.get("content")),
        [_call(call) for call in calls] if isinstance(calls, list) else [],
        [message.get(key) for key in ("name", "call_id", "tool_call_id", "arguments", "output")],
    ]


def _text(content: Any) -> str:
    if isinstance(content, list):
        texts = (part.get("text", part) if isinstance(part, dict) else part for part in content)
        content = "".join(text if isinstance(text, str) else str(text) for text in texts)
    if not isinstance(content, str):
        return ""
    return content.rpartition("</think>")[2].strip()


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    return [call.get("id"), function.get("name"), function.get("arguments")] if isinstance(function, dict) else call


def _is_answer(message: Any) -> bool:
    return isinstance(message, dict) and (message.get("role") == "assistant" or message.get("type") == "function_call")


def _is_reasoning(message: Any) -> bool:
    return isinstance(message, dict) and message.get("type") == "reasoning"


def _hashed(before: bytes, value: Any) -> bytes:
    return blake2b(before + orjson.dumps(value), digest_size=16).digest()
