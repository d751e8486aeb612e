"""Text to tokens and back, and the "model": tokens that follow from the seed and the prompt alone.

The vocabulary is five special tokens, the 256 bytes, and words of three letters, so every text can be encoded and
every encoding decoded. Generated text consists of those words and encodes to the very tokens that were generated.
"""

import hashlib
import re
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import orjson

_SPECIAL = (b"<pad>", b"<s>", b"</s>", b"<|im_start|>", b"<|im_end|>")
EOS = _SPECIAL.index(b"</s>")
_FIRST_BYTE = len(_SPECIAL)
_FIRST_WORD = _FIRST_BYTE + 256
_WORDS = tuple(f" {a}{b}{c}".encode() for a in "bdfgklmnprst" for b in "aeiou" for c in "dklmnrst")
_PIECES: tuple[bytes, ...] = (*_SPECIAL, *(bytes([byte]) for byte in range(256)), *_WORDS)
_IDS = {piece: number for number, piece in enumerate(_PIECES)}
_SPLIT = re.compile(rb"<\|im_start\|>|<\|im_end\|>|</?s>| [a-z]{3}(?![a-z])|[^ <]+|.", re.DOTALL)

VOCABULARY = len(_PIECES)
_SHORTEST, _SPREAD = 8, 56  # an answer that nothing cuts has 8 to 63 tokens


def encode(text: str) -> list[int]:
    """Tokens of a text."""
    return list(chain.from_iterable(map(_spell, _SPLIT.findall(text.encode()))))


@lru_cache(maxsize=4096)
def _spell(piece: bytes) -> tuple[int, ...]:
    known = _IDS.get(piece)
    return tuple(_FIRST_BYTE + byte for byte in piece) if known is None else (known,)


def decode(tokens: Sequence[int], *, keep_special: bool = False) -> str:
    """The text of tokens; ids outside the vocabulary raise IndexError."""
    first = 0 if keep_special else _FIRST_BYTE
    return b"".join(_PIECES[token] for token in tokens if token >= first).decode(errors="replace")


def render(messages: Sequence[dict[str, Any]], *, generation_prompt: bool = True) -> str:
    """The chat template: turn k's rendering is a prefix of turn k+1's."""
    turns = [f"<|im_start|>{message.get('role')}\n{_content(message)}<|im_end|>\n" for message in messages]
    if generation_prompt:
        turns.append("<|im_start|>assistant\n")
    return "".join(turns)


def _content(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    calls = message.get("tool_calls")
    return content + orjson.dumps(calls).decode() if calls else content


def generate(seed: int, prompt: Sequence[int], max_tokens: int, *, ignore_eos: bool) -> tuple[list[int], str]:
    """The whole answer to a prompt and its finish reason, "stop" (the last token is EOS) or "length"."""
    digest = hashlib.blake2b(array("I", prompt).tobytes(), key=seed.to_bytes(8, "big", signed=True)).digest()
    natural = _SHORTEST + digest[0] % _SPREAD
    stops = natural <= max_tokens and not ignore_eos
    length = natural - 1 if stops else max_tokens
    draws = array("H", hashlib.shake_128(digest).digest(2 * length))
    tokens = [_FIRST_WORD + draw % len(_WORDS) for draw in draws]
    return ([*tokens, EOS], "stop") if stops else (tokens, "length")


def logprob(token: int, position: int) -> float:
    """A plausible log probability, the same for the same token at the same position."""
    return -((token * 2654435761 + position * 40503) % 4093 + 1) / 1024
