"""Headers in both directions: what has to pass and what must not, and the framings that a client may choose.

Heads of shards on which a client's parser breaks are faults: big_header, many_headers, double_length.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import orjson

from ...asking import Streams, ask, post
from ...http1 import Headers, ResponseReader, header
from ..findings import Word
from .backends import JSON, Delivery, Respond, Send, ok, plain
from .bench import Bench, Reply, Rig, SharedRig, chat, converse, with_headers
from .results import Notes, Result, safe

_TRACEPARENT = (b"traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
_PASSING: Headers = (
    (b"Authorization", b"Bearer probe-key"),
    (b"X-Session-ID", b"session-1"),
    (b"Cookie", b"session=abc; theme=dark"),
    (b"X-Request-Id", b"probe-request-1"),
    _TRACEPARENT,
    (b"X-Gymproof-Unknown", b"a value"),
    (b"Accept", b"application/json"),
    (b"User-Agent", b"Python/3.12 aiohttp/3.14.5"),
)
# About one connection, as are the headers that Connection names (RFC 9110, 7.6.1), or for the next proxy alone (11.7).
_HOP: Headers = (
    (b"Connection", b"keep-alive, X-Gymproof-Hop"),
    (b"X-Gymproof-Hop", b"1"),
    (b"Keep-Alive", b"timeout=9"),
    (b"Proxy-Authorization", b"Basic cHJvYmU6cHJvYmU="),
    (b"TE", b"trailers"),
)
_ANSWERED: Headers = (
    (b"X-Request-Id", b"shard-request-1"),
    (b"Retry-After", b"7"),
    (b"X-Gymproof-Unknown", b"b value"),
)
_HOP_BACK: Headers = (
    (b"Keep-Alive", b"timeout=1"),
    (b"Proxy-Authenticate", b'Basic realm="probe"'),
    (b"X-Gymproof-Hop", b"1"),
    (b"Connection", b"keep-alive, X-Gymproof-Hop"),
)
_DROP = (
    "Drop hop-by-hop headers and those that Connection names (RFC 9110, 7.6.1), and Proxy-Authenticate and "
    "Proxy-Authorization (11.7)."
)
_INVITED_WITHIN_S = 3.0
# Bytes that have to stay; what follows is a charset, or the router's own span (W3C Trace Context).
_HAVE_TO_STAY: Mapping[bytes, int] = {b"content-type": len(b"application/json"), b"traceparent": 35}


async def _request_headers(rig: Rig) -> Result:
    """What a client says about itself and its request reaches the shard."""
    name = rig.name("request-headers")
    reply = await rig.chat(name, headers=_PASSING)
    got = rig.delivered(name)
    if not got:
        return _lost("a request with the usual headers reaches no shard", reply)
    at_shard = got[0].request.head.headers
    changed = [line for line in (*JSON, *_PASSING) if not _arrives(at_shard, line)]
    lines = [*_shown("sent", _PASSING), *_shown("arrived", at_shard)]
    if not changed:
        return safe(f"all {len(_PASSING) + 1} arrive: {_names(_PASSING)}", lines)
    right = f"Pass these on: {_names(changed)}; only hop-by-hop headers are the router's own."
    gone = {key.lower() for key, _ in changed}
    needed = b"content-type" in gone or (b"authorization" in gone and not header(at_shard, b"authorization"))
    kept = [line for line in _PASSING if line not in changed]
    seen = f"lost or changed: {_names(changed)}; kept: {_names(kept) or 'none'}"
    return Result(Word.UNSAFE if needed else Word.BOUNDED, seen, right, lines)


async def _request_hop_by_hop(rig: Rig) -> Result:
    """What is about the client's connection does not reach the shard."""
    name = rig.name("request-hop")
    reply = await rig.chat(name, headers=_HOP)
    got = rig.delivered(name)
    if not got:
        return _lost("a request with hop-by-hop headers reaches no shard", reply)
    at_shard = got[0].request.head.headers
    passed = [line for line in _HOP if line[0] != b"Connection" and _has(at_shard, line)]
    lines = [*_shown("sent", _HOP), *_shown("arrived", at_shard)]
    if _values(at_shard, b"content-length") and _values(at_shard, b"transfer-encoding"):
        right = "Frame the body anew for the connection to the shard: Content-Length or Transfer-Encoding, never both."
        return Result(Word.UNSAFE, "the shard gets two framings of one body", right, lines)
    if passed:
        return Result(Word.BOUNDED, f"reach the shard: {_names(passed)}", _DROP, lines)
    return safe("none of them reaches the shard", lines)


async def _response_headers(rig: Rig) -> Result:
    """What a client reads of an answer's head arrives."""
    name = rig.name("response-headers")
    rig.scripts[name] = plain(ok(headers=_ANSWERED))
    reply = await rig.chat(name)
    if not reply.ok:
        return _lost("a shard's answer with the usual headers does not arrive", reply)
    lines = [*_shown("sent", (*JSON, *_ANSWERED)), *_shown("arrived", reply.headers)]
    media = header(reply.headers, b"content-type").partition(b";")[0].strip()
    if media != b"application/json":
        right = (
            "Pass Content-Type on: NeMo-Gym reads JSON whatever it says, but other clients choose their parser by it."
        )
        return Result(Word.BOUNDED, f"Content-Type is {media!r} in place of application/json", right, lines)
    if not _has(reply.headers, _ANSWERED[0]):
        right = "Pass X-Request-Id on: it is how a client's log and a shard's are put together."
        return Result(Word.BOUNDED, f"X-Request-Id arrives as {header(reply.headers, b'x-request-id')!r}", right, lines)
    left = [line for line in _ANSWERED if not _has(reply.headers, line)]
    return safe(f"Content-Type and X-Request-Id arrive; left out: {_names(left) or 'none'}", lines)


async def _response_hop_by_hop(rig: Rig) -> Result:
    """What is about the shard's connection does not reach the client."""
    name = rig.name("response-hop")
    rig.scripts[name] = _verbatim((*JSON, *_HOP_BACK))
    reply = await rig.chat(name)
    if not reply.ok:
        return _lost("an answer with hop-by-hop headers does not arrive", reply)
    passed = [line for line in _HOP_BACK if line[0] != b"Connection" and _has(reply.headers, line)]
    lines = [*_shown("sent", _HOP_BACK), *_shown("arrived", reply.headers)]
    if passed:
        return Result(Word.BOUNDED, f"reach the client: {_names(passed)}", _DROP, lines)
    return safe("none of them reaches the client", lines)


def _verbatim(headers: Headers) -> Respond:
    """The usual chat body under these header lines, hop-by-hop ones and all."""
    body = ok().body

    async def respond(_delivery: Delivery, send: Send) -> None:
        lines = [b"HTTP/1.1 200 OK", *(b"%b: %b" % line for line in headers), b"Content-Length: %d" % len(body)]
        send(b"\r\n".join(lines) + b"\r\n\r\n" + body)

    return respond


async def _expect(rig: Rig) -> Result:
    """A client that waits to be invited before it sends the body, as curl does over 1 KiB."""
    name = rig.name("expect")
    body = chat(name, "x" * 2048)
    head, _, _ = with_headers(post(rig.router.url, body), ((b"Expect", b"100-continue"),)).partition(b"\r\n\r\n")
    first = b""

    async def talk(streams: Streams, answer: ResponseReader) -> None:
        nonlocal first
        reader, writer = streams
        writer.write(head + b"\r\n\r\n")
        first = await _soon(reader.readuntil(b"\r\n\r\n"))
        answer.feed(first)
        final = first and not first.startswith(b"HTTP/1.1 100")
        await ask(streams, b"" if final else body, answer)

    reply = await converse(rig.router.url, talk, within_s=rig.bench.patience_s)
    waits = f"invited by {first[:40]!r}" if first else f"not invited within {_INVITED_WITHIN_S:g} s"
    return _served(rig, name, body, reply, "a request with Expect: 100-continue", waits, late=not first)


async def _soon(reading: Awaitable[bytes]) -> bytes:
    """The head that is read, what there is of one that is cut, b"" if none comes soon."""
    try:
        async with asyncio.timeout(_INVITED_WITHIN_S):
            return await reading
    except TimeoutError:
        return b""
    except asyncio.IncompleteReadError as error:
        return error.partial


async def _chunked(rig: Rig) -> Result:
    """A body whose length the client does not know beforehand."""
    name = rig.name("chunked")
    body = chat(name, "x" * 2048)
    head = (
        post(rig.router.url, b"").partition(b"\r\n\r\n")[0].replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    )
    parts = (body[:100], body[100:1500], body[1500:])
    wire = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    reply = await rig.ask(head + b"\r\n\r\n" + wire + b"0\r\n\r\n")
    return _served(rig, name, body, reply, "a chunked request", f"{len(parts)} chunks", late=False)


def _served(rig: Rig, name: str, body: bytes, reply: Reply, what: str, how: str, *, late: bool) -> Result:
    got = rig.delivered(name)
    lines = [how, *map(str, got), f"the client got: {reply}"]
    right = "Take it as any other: HTTP/1.1 asks for it (RFC 9110, 10.1.1; RFC 9112, 7.1)."
    if bad := rig.flaw(reply):
        return Result(Word.UNSAFE, f"{what} ({how}): {bad}", right, lines)
    if not reply.ok or not got:
        return Result(Word.BOUNDED, f"{what} ({how}): refused with {reply.status}", right, lines)
    if not _same_content(got[0].request.body, body):
        return Result(Word.UNSAFE, f"{what} ({how}): its body arrives changed", right, lines)
    if late:
        return Result(Word.BOUNDED, f"{what}: served, but {how}", right, lines)
    return safe(f"{what} is served, {how}", lines)


def _same_content(got: bytes, sent: bytes) -> bool:
    """Whether the messages arrived; what else becomes of a body is judged as payload."""
    try:
        texts = [orjson.loads(body)["messages"][0]["content"] for body in (got, sent)]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return False
    return bool(texts[0] == texts[1])


def _lost(what: str, reply: Reply) -> Result:
    return Result(
        Word.UNSAFE,
        f"{what}: {reply}",
        "Send it on to a shard, and the shard's answer back: nothing is wrong with either.",
        [str(reply)],
    )


def _arrives(headers: Headers, line: tuple[bytes, bytes]) -> bool:
    """Whether a header is there, and says what it said."""
    name, value = line
    stays = slice(_HAVE_TO_STAY.get(name))
    return any(got[stays] == value[stays] for got in _values(headers, name))


def _has(headers: Headers, line: tuple[bytes, bytes]) -> bool:
    return line[1] in _values(headers, line[0])


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name.lower()]


def _names(headers: Iterable[tuple[bytes, bytes]]) -> str:
    return ", ".join(name.decode("latin-1") for name, _ in headers)


def _shown(what: str, headers: Headers) -> Sequence[str]:
    return [f"{what}: {name.decode('latin-1')}: {value[:80].decode('latin-1')}" for name, value in headers]


_CHECKS: Mapping[str, Callable[[Rig], Awaitable[Result]]] = {
    "request_headers": _request_headers,
    "request_hop_by_hop": _request_hop_by_hop,
    "response_headers": _response_headers,
    "response_hop_by_hop": _response_hop_by_hop,
    "expect_100_continue": _expect,
    "chunked_request": _chunked,
}
CHECKS = tuple(_CHECKS)


async def probe(_bench: Bench, shared: SharedRig, notes: Notes) -> None:
    """Ask all of it at once."""
    rig = await shared.rig()
    await notes.take_all({name: check(rig) for name, check in _CHECKS.items()}, rig.bench.patience_s * 2)
