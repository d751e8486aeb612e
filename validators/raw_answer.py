"""One HTTP answer as it came over the wire, and what in it a client's parser would trip over.

Pure: bytes in, values out. Irregularities carry the names of the contract's transport faults,
so what NeMo-Gym does with one is looked up, not guessed.
"""

import gzip
import json
import zlib
from dataclasses import dataclass
from typing import Any

LINE_LIMIT = 8190  # bytes of one header line, or of a reason phrase, that the client's parser takes
LINES_LIMIT = 128  # header lines
_FIRST_ERROR = 400


class NotHttpError(ValueError):
    """A server answered with something that has no HTTP status line."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """Status, header lines in order and as sent, and the body without its transfer coding.

    `cut` says that the connection ended before the body did.
    """

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    cut: bool = False

    def all(self, name: str) -> list[str]:
        """Every value of a header, in order."""
        return [value for key, value in self.headers if key.lower() == name]

    def header(self, name: str) -> str:
        """The first value of a header, or ""."""
        return next(iter(self.all(name)), "")


def parse_head(head: bytes) -> RawAnswer:
    """Read a status line and header lines; NotHttpError when the first line is no status line."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    code, _, reason = rest.partition(" ")
    if not version.startswith("HTTP/") or not code.isdigit():
        raise NotHttpError(f"no status line but {first[:60]!r}")
    fields = (line.partition(":") for line in lines if line)
    return RawAnswer(int(code), reason, tuple((name.strip(), value.strip()) for name, _, value in fields))


def irregularity(answer: RawAnswer) -> str | None:
    """The contract's name for the first thing that keeps a client from using this answer, or None."""
    return _head_fault(answer) or _body_fault(answer)


def _head_fault(answer: RawAnswer) -> str | None:
    lengths = answer.all("content-length")
    faults = {
        "content_length_twice": len(lengths) > 1 and len(set(lengths)) == 1,
        "content_length_twice_differing": len(set(lengths)) > 1,
        "content_length_and_chunked": bool(lengths) and bool(answer.all("transfer-encoding")),
        "header_line_9000": any(len(name) + len(value) + 2 > LINE_LIMIT for name, value in answer.headers),
        "header_lines_130": len(answer.headers) > LINES_LIMIT,
        "reason_phrase_9000": len(answer.reason) > LINE_LIMIT,
    }
    return next((name for name, found in faults.items() if found), None)


def _body_fault(answer: RawAnswer) -> str | None:
    coding = answer.header("content-encoding").lower()
    if answer.cut or coding in ("br", "zstd"):
        # The client asks for neither coding and can read neither.
        return "fin_in_body_200" if answer.cut else f"{coding}_lie_200"
    try:
        body = decoded(answer)
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return "body_not_utf8_500" if answer.status >= _FIRST_ERROR else "body_not_utf8_200"
    except (OSError, EOFError, zlib.error):
        return "gzip_lie_200"
    if answer.status >= _FIRST_ERROR:
        return None
    return _json_fault(text)


def _json_fault(text: str) -> str | None:
    try:
        strict_json(text)
    except ValueError:
        return "body_not_json" if text else "body_empty"
    return None


def decoded(answer: RawAnswer) -> bytes:
    """The body without its content coding; OSError, EOFError or zlib.error when it does not match."""
    match answer.header("content-encoding").lower():
        case "gzip":
            return gzip.decompress(answer.body)
        case "deflate":
            return zlib.decompress(answer.body)
        case _:
            return answer.body


def strict_json(text: str) -> Any:
    """JSON as the client reads it, without NaN, Infinity or a byte order mark. Raises ValueError."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def error_shape(answer: RawAnswer) -> str | None:
    """What keeps an error from being `{"error": {"message", "type", "code", "param"}}`, or None."""
    if not answer.header("content-type").lower().startswith("application/json"):
        return f"Content-Type is {answer.header('content-type') or 'missing'}, not application/json"
    try:
        error = strict_json(decoded(answer).decode("utf-8"))["error"]
        missing = [key for key in ("message", "type", "code", "param") if key not in error]
    except (ValueError, TypeError, KeyError, OSError, EOFError, zlib.error):
        return "no JSON object under `error`"
    return f"no {', '.join(missing)} under `error`" if missing else None
