"""Payload fidelity: the bytes at the shard are the client's, and the bytes at the client are the shard's.

On-policy training computes gradients for the very tokens that were sampled: a router that drops token ids or rounds a
logprob does so without any error. Where bytes differ, the JSON paths say what was lost.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial

import orjson

from ...asking import CHAT_PATH, post
from ...http1 import Response
from ..findings import Word
from . import samples
from .backends import COMPLETIONS, JSON, RESPONSES, plain, streamed
from .bench import Bench, Reply, Rig, SharedRig
from .json_paths import Change, Kind, differences
from .results import Notes, Result, safe, worst

_ABSENT = frozenset({404, 405, 501})
_SHOWN = 12
# What may be lost without a loss to training; any other field decides what is sampled, or what is learned from it.
# Of the two names for what a model thought, vLLM 0.32 reads `reasoning` alone.
_SPARE_IN_REQUESTS = frozenset({"metadata", "user", "store", "parallel_tool_calls", "reasoning_content"})
_NOTHING = frozenset({"null", "[]", "{}"})  # as good as left out
_SPARE_IN_ANSWERS = frozenset({
    *("id", "object", "created", "created_at", "model", "usage", "metadata", "annotations", "parallel_tool_calls"),
    *("tool_choice", "tools", "temperature"),
})  # fmt: skip
_UNKNOWN = "x_"  # a field of the samples that no API has
_ALIASES = frozenset({("max_tokens", "max_completion_tokens")})  # vLLM takes either
_AS_SENT = "Pass bodies on as bytes, without parsing them into types of your own and writing them anew."


def _harmless(change: Change, spare: Collection[str]) -> bool:
    names = {part.partition("[")[0] for part in change.path.split(".")}
    return (
        any(name in spare or name.startswith(_UNKNOWN) for name in names)
        or change.kind in {Kind.ADDED, Kind.REWRITTEN}
        or (change.kind is Kind.DROPPED and change.was in _NOTHING)
        or (change.kind is Kind.MOVED and (change.path, change.to) in _ALIASES)
    )


def compare(what: str, sent: bytes, got: bytes, spare: Collection[str]) -> Result:
    """Judge what became of a JSON body."""
    if sent == got:
        return safe(f"{what}: {len(sent)} bytes, unchanged")
    try:
        changes = differences(sent, got, _ALIASES)
    except ValueError as error:
        return Result(Word.UNSAFE, f"{what} arrives as no JSON: {error}", _AS_SENT, excerpts(sent, got))
    evidence = [*map(str, changes), *excerpts(sent, got)]
    lost = [change for change in changes if not _harmless(change, spare)]
    if lost:
        return Result(Word.UNSAFE, f"{what}, lost or changed: {_listed(lost)}", _AS_SENT, evidence)
    if changes:
        return Result(Word.BOUNDED, f"{what}, nothing that training needs, but: {_listed(changes)}", _AS_SENT, evidence)
    return Result(Word.BOUNDED, f"{what}: written anew, with the same content", _AS_SENT, evidence)


def _listed(changes: Sequence[Change]) -> str:
    shown = [f"{change.path} {change.kind}" for change in changes[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else "")


def excerpts(sent: bytes, got: bytes, around: int = 70) -> list[str]:
    """Both sides where they begin to differ."""
    pairs = enumerate(zip(sent, got, strict=False))
    at = next((index for index, (left, right) in pairs if left != right), min(len(sent), len(got)))
    part = slice(max(0, at - 20), at + around)
    return [f"byte {at} of {len(sent)} sent:    {sent[part]!r}", f"byte {at} of {len(got)} arrived: {got[part]!r}"]


async def _request(rig: Rig, sample: str, path: str) -> Result:
    """What reaches the shard of a sample request."""
    name = rig.name(f"request.{sample}")
    body = samples.request(sample, name)
    reply = await rig.ask(post(rig.router.url, body, path))
    got = rig.delivered(name)
    if not got:
        return _not_delivered(reply, path, rig)
    result = compare("the request", body, got[0].request.body, _SPARE_IN_REQUESTS)
    if (arrived := got[0].request.head.path) != path:
        right = f"Send it on to {path}: another path is another API."
        return Result(Word.UNSAFE, f"asked of {path}, sent to {arrived}; {result.seen}", right, result.evidence)
    return result


def _not_delivered(reply: Reply, path: str, rig: Rig) -> Result:
    if reply.status in _ABSENT and not rig.flaw(reply):
        return Result(Word.NOT_APPLICABLE, f"{path} is not served ({reply.status}): see paths", evidence=[str(reply)])
    right = "Send on what vLLM takes, unknown fields and all: whether a request is valid is the shard's to say."
    return Result(Word.UNSAFE, f"a request that vLLM takes reaches no shard: {reply}", right, [str(reply)])


async def _answer(rig: Rig, sample: str, path: str) -> Result:
    """What reaches the client of a sample answer."""
    name = rig.name(f"answer.{sample}")
    sent = samples.ANSWERS[sample]
    rig.scripts[name] = plain(Response(200, JSON, sent))
    reply = await rig.ask(post(rig.router.url, samples.plain(path, name), path))
    if not rig.delivered(name):
        return _not_delivered(reply, path, rig)
    if not reply.ok:
        right = "Pass a shard's whole, well-formed 200 on, fields that you do not know included."
        return Result(Word.UNSAFE, f"a shard's good answer does not arrive: {reply}", right, [str(reply)])
    return compare("the answer", sent, reply.body, _SPARE_IN_ANSWERS)


async def _stream(rig: Rig) -> Result:
    """What reaches the client of a stream of events."""
    name = rig.name("stream")
    sent = b"".join(samples.STREAM)
    rig.scripts[name] = streamed(samples.STREAM, every_s=0.01)  # so that each comes in a segment of its own
    reply = await rig.ask(post(rig.router.url, samples.plain(CHAT_PATH, name, stream=True)))
    if not reply.ok:
        right = "Pass a stream's events on as they come, and its end."
        return Result(Word.UNSAFE, f"a whole stream of a shard does not arrive: {reply}", right, [str(reply)])
    if reply.body == sent:
        return safe(f"the stream: {len(samples.STREAM)} events, {len(sent)} bytes, unchanged")
    return _compare_events(events(sent), events(reply.body), excerpts(sent, reply.body))


def events(stream: bytes) -> list[bytes]:
    """The data of each event of a stream; comments have none."""
    lines = stream.replace(b"\r\n", b"\n").split(b"\n")
    return [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]


def _compare_events(sent: Sequence[bytes], got: Sequence[bytes], evidence: Sequence[str]) -> Result:
    if len(sent) != len(got):
        seen = f"the stream had {len(sent)} events, and {len(got)} arrived"
        return Result(Word.UNSAFE, seen, _AS_SENT, evidence)
    pairs = zip(sent, got, strict=True)
    results = [compare("an event", left, right, _SPARE_IN_ANSWERS) for left, right in pairs if left != right]
    word = worst([Word.BOUNDED, *(result.word for result in results)])
    telling = next((result for result in results if result.word is word), None)
    seen = telling.seen if telling else "the stream: the same events, framed otherwise"
    return Result(word, seen, _AS_SENT, [*(telling.evidence if telling else ()), *evidence])


_REFUSALS: Mapping[int, bytes] = {
    400: b'{"error": {"message": "This model\'s maximum context length is 4096 tokens. However, you requested 5000 '
    b'tokens (4936 in the messages, 64 in max_tokens).",  "type":"BadRequestError","param":null,"code":400}}',
    404: b'{"error":{"message":"The model `tiny` does not exist.","type":"NotFoundError","param":"model","code":404}}',
    422: b'{"detail": [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": {}}]}',
}
_TELLING = b"context length"  # by which NeMo-Gym scores a 400 as an over-long rollout, in place of losing it


async def _refusal(rig: Rig, status: int) -> Result:
    """What reaches the client of a shard's own 4xx."""
    name, body = rig.name(f"refusal.{status}"), _REFUSALS[status]
    rig.scripts[name] = plain(Response(status, JSON, body))
    reply = await rig.chat(name)
    tries = len(rig.delivered(name))
    lines = [f"{tries} deliveries, each answered {status} {body!r}", str(reply), f"the client got {reply.body!r}"]
    right = f"Pass a shard's {status} on with its body, once: another shard would say the same."
    if not tries:
        return _not_delivered(reply, CHAT_PATH, rig)
    if bad := rig.flaw(reply):
        return Result(Word.UNSAFE, f"a shard's {status} becomes {bad}", right, lines)
    telling = status == 400 and _TELLING not in reply.body  # noqa: PLR2004
    if reply.status != status or telling:
        lost = "without the text by which it is known" if reply.status == status else f"as {reply.status}"
        word = Word.UNSAFE if status == 400 else Word.BOUNDED  # noqa: PLR2004
        return Result(word, f"a shard's {status} arrives {lost}", right, lines)
    if reply.body != body or tries > 1:
        seen = f"a shard's {status} arrives, in {tries} tries, {_same(body, reply.body)}"
        return Result(Word.BOUNDED, seen, right, lines)
    return safe(f"a shard's {status} arrives unchanged, asked once", lines)


def _same(sent: bytes, got: bytes) -> str:
    if sent == got:
        return "its body unchanged"
    try:
        return "its body written anew" if orjson.loads(sent) == orjson.loads(got) else "its body changed"
    except orjson.JSONDecodeError:
        return "its body no JSON any more"


_CHECKS: Mapping[str, Callable[[Rig], Awaitable[Result]]] = {
    "token_ids_request": partial(_request, sample="token_ids", path=CHAT_PATH),
    "reasoning_request": partial(_request, sample="reasoning", path=CHAT_PATH),
    "numbers_and_text_request": partial(_request, sample="writing", path=CHAT_PATH),
    "chat_answer": partial(_answer, sample="chat", path=CHAT_PATH),
    "chat_stream": _stream,
    "completion_request": partial(_request, sample="completion", path=COMPLETIONS),
    "completion_answer": partial(_answer, sample="completion", path=COMPLETIONS),
    "responses_request": partial(_request, sample="responses", path=RESPONSES),
    "responses_answer": partial(_answer, sample="responses", path=RESPONSES),
    **{f"refusal_{status}": partial(_refusal, status=status) for status in _REFUSALS},
}
CHECKS = tuple(_CHECKS)


async def probe(_bench: Bench, shared: SharedRig, notes: Notes) -> None:
    """Ask all of it at once."""
    rig = await shared.rig()
    await notes.take_all({name: check(rig) for name, check in _CHECKS.items()}, rig.bench.patience_s * 2)
