"""Paths: those that training needs are served, those that steer an engine stay out of reach, others get an answer."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

import orjson

from ...asking import MODEL, post
from ...http1 import Response, header
from ...tags import tag
from ..findings import Word
from . import samples
from .backends import COMPLETIONS, HEALTH, JSON, MODELS, RESPONSES, TOKENIZE, Delivery, Send, plain
from .bench import Bench, Reply, Rig, SharedRig, bare
from .payload import compare
from .results import Notes, Result, safe, worst

_TOKENIZE_ASKS = 8  # enough for each shard to have its turn
_CLIENT_ERRORS = range(400, 500)


@dataclass(frozen=True, slots=True)
class _Needed:
    """A path that a client asks, the sample that it sends, what becomes of a client when it is missing."""

    path: str
    sample: str
    missing: Word
    why: str


_NEEDED: Mapping[str, _Needed] = {
    "tokenize": _Needed(
        TOKENIZE, "tokenize", Word.UNSAFE, "NeMo-Gym, which asks for token ids after each turn, loses the rollout"
    ),
    "completions": _Needed(COMPLETIONS, "completion", Word.BOUNDED, "clients that send prompts give up at once"),
    "responses": _Needed(RESPONSES, "responses", Word.BOUNDED, "clients that speak only this API give up at once"),
}


async def _needed(rig: Rig, needed: _Needed) -> Result:
    """A POST that a shard serves, and its answer."""
    name = rig.name(needed.sample)
    sent = samples.ANSWERS[needed.sample]
    rig.scripts[name] = plain(Response(200, JSON, sent))
    body = samples.plain(needed.path, name)
    reply = await rig.ask(post(rig.router.url, body, needed.path))
    got = rig.delivered(name)
    lines = [*map(str, got), f"the client got: {reply}"]
    right = f"Send POST {needed.path} on to a shard and its answer back, unchanged: without it {needed.why}."
    if bad := rig.flaw(reply):
        return Result(Word.UNSAFE, f"POST {needed.path}: {bad}", right, lines)
    if not reply.ok:
        return Result(needed.missing, f"POST {needed.path}: {reply.status}, {len(got)} deliveries", right, lines)
    if not got or got[0].request.head.path != needed.path:
        where = got[0].request.head.path if got else "no shard"
        return Result(Word.BOUNDED, f"POST {needed.path} is made from another API: asked of {where}", right, lines)
    asked = compare("the request", body, got[0].request.body, ())
    answered = compare("the answer", sent, reply.body, ())
    if needed.path == TOKENIZE and Word.UNSAFE in {asked.word, answered.word}:
        result = asked if asked.word is Word.UNSAFE else answered
        return Result(Word.UNSAFE, f"POST {TOKENIZE}: {result.seen}", result.right, result.evidence)
    return safe(f"POST {needed.path} reaches a shard, and its answer the client", lines)


async def _tokenize_elsewhere(rig: Rig) -> Result:
    """What becomes of it where the shard that is asked first answers 503, from then on.

    Some routers try generations again, and nothing else.
    """
    name = rig.name("elsewhere")
    well, busy = (
        Response(200, JSON, samples.ANSWERS["tokenize"]),
        Response(503, JSON, b'{"error": {"message": "busy"}}'),
    )

    async def respond(delivery: Delivery, send: Send) -> None:
        first = rig.delivered(name)[0].shard
        send((busy if delivery.shard == first else well).wire())

    rig.scripts[name] = respond
    question = post(rig.router.url, samples.request("tokenize", name), TOKENIZE)
    replies = [await rig.ask(question) for _ in range(_TOKENIZE_ASKS)]
    got = rig.delivered(name)
    lines = [*map(str, got), *(f"the client got: {reply}" for reply in replies)]
    seen = ", ".join(f"{status} x{times}" for status, times in Counter(one.status for one in replies).items())
    right = "Try another shard for /tokenize too: each turn of a training rollout asks it."
    if not got:
        return Result(Word.NOT_APPLICABLE, f"POST {TOKENIZE} reaches no shard: {seen}")
    seen = f"one shard of two answers 503, the client gets {seen}"
    if rig.bench.flaws(replies):
        return Result(Word.UNSAFE, seen, right, lines)
    if not all(reply.ok for reply in replies):
        return Result(Word.BOUNDED, seen, right, lines)
    return safe(seen, lines)


async def _models(rig: Rig) -> Result:
    """The list that clients ask for the model's name."""
    reply = await rig.ask(bare("GET", rig.router.url, MODELS))
    lines = [f"the client got: {reply}", repr(reply.body[:300])]
    right = "Answer GET /v1/models with the list of models, as a shard does."
    if bad := rig.flaw(reply):
        return Result(Word.UNSAFE, f"GET {MODELS}: {bad}", right, lines)
    try:
        names = [model["id"] for model in orjson.loads(reply.body)["data"]] if reply.ok else []
    except (orjson.JSONDecodeError, LookupError, TypeError):
        names = []
    if not names:
        return Result(Word.BOUNDED, f"GET {MODELS}: {reply.status}, no list of models", right, lines)
    return safe(f"GET {MODELS} names {', '.join(map(str, names))}", lines)


async def _health(rig: Rig) -> Result:
    """A load balancer's question."""
    reply = await rig.ask(bare("GET", rig.router.url, HEALTH))
    right = "Answer GET /health at once, 200 or a plain 4xx, from what the router knows."
    if bad := rig.flaw(reply):
        return Result(Word.UNSAFE, f"GET {HEALTH}: {bad}", right, [f"the client got: {reply}"])
    return safe(f"GET {HEALTH}: {reply.status} after {reply.seconds:.2f} s")


_POSTS = (
    *("/pause", "/resume", "/sleep", "/wake_up", "/update_weights", "/init_weight_transfer_engine", "/collective_rpc"),
    *("/reset_prefix_cache", "/load_lora_adapter", "/v1/load_lora_adapter", "/abort_requests", "/scale_elastic_ep"),
)  # fmt: skip
# Other spellings of one of them: vLLM decodes %70 itself, and what may stand before it resolves dots and slashes.
_DISGUISED = ("/v1/../pause", "/v1/chat/completions/../../../pause", "/%70ause", "//pause", "/pause/", "/./sleep")


async def _admin(rig: Rig, paths: Sequence[str]) -> Result:
    """Paths that change what an engine is or does; whoever may generate must not reach them."""
    passed, lines = [], []
    for path in paths:
        name = rig.name("admin")
        body = orjson.dumps({"text": tag(name), "model": MODEL})
        reply = await rig.ask(post(rig.router.url, body, path))
        got = [one for one in rig.delivered(name) if _steers(one.request.head.path)]
        lines.append(f"POST {path}: {reply}")
        if got:
            passed.append(path)
            lines.append(f"  {got[0]}")
        if bad := rig.flaw(reply):
            return Result(Word.UNSAFE, f"POST {path}: {bad}", "Refuse it with a 404 or 403.", lines)
    if passed:
        right = "Serve a list of known paths, and refuse the rest: these act on one shard, by chance, mid-generation."
        return Result(Word.UNSAFE, f"reach a shard: {', '.join(passed)}", right, lines)
    return safe(f"none of {len(paths)} reaches a shard", lines)


def _steers(path: str) -> bool:
    """Whether this path is one of those to a shard, or to what stands before it."""
    parts: list[str] = []
    for part in unquote(path.partition("?")[0]).split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    return f"/{'/'.join(parts)}" in _POSTS


async def _metrics(rig: Rig) -> Result:
    """The shards' own figures: one shard's, by chance, tell nothing about the fleet."""
    mark = rig.name("metrics")
    path = f"/metrics?{mark}"
    reply = await rig.ask(bare("GET", rig.router.url, path))
    got = [one for backend in rig.backends for one in backend.deliveries if mark in one.request.head.path]
    lines = [*map(str, got), f"the client got: {reply}"]
    if bad := rig.flaw(reply):
        return Result(Word.UNSAFE, f"GET /metrics: {bad}", "Refuse it with a 404, or serve the router's own.", lines)
    if got:
        right = "Refuse it with a 404, or serve the router's own: each call would show another shard."
        return Result(Word.BOUNDED, f"GET /metrics is sent on to shard {got[0].shard}", right, lines)
    return safe(f"GET /metrics: {reply.status}, no shard was asked", lines)


async def _unknown(rig: Rig) -> Result:
    """Paths that nobody serves."""
    asked = {
        "GET": ("/no/such/path", bare("GET", rig.router.url, "/no/such/path")),
        "POST": ("/v1/no_such_api", post(rig.router.url, b'{"model": "x"}', "/v1/no_such_api")),
    }
    replies = {f"{method} {path}": await rig.ask(wire) for method, (path, wire) in asked.items()}
    lines = [f"{what}: {reply}" for what, reply in replies.items()]
    right = 'Answer 404 with {"error": {...}} in JSON, as the APIs do.'
    for what, reply in replies.items():
        if bad := rig.flaw(reply):
            return Result(Word.UNSAFE, f"{what}: {bad}", right, lines)
    words = [_refusal(reply) for reply in replies.values()]
    seen = "; ".join(f"{what}: {reply.status} {_kind(reply)}" for what, reply in replies.items())
    return Result(worst(words), seen, right if Word.BOUNDED in words else "", lines)


def _refusal(reply: Reply) -> Word:
    return Word.SAFE if reply.status in _CLIENT_ERRORS and _kind(reply) == "JSON" else Word.BOUNDED


def _kind(reply: Reply) -> str:
    try:
        orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        kind = header(reply.headers, b"content-type").decode("latin-1")
        return f"no JSON ({kind or 'no Content-Type'}, {len(reply.body)} bytes)"
    return "JSON"


_CHECKS: Mapping[str, Callable[[Rig], Awaitable[Result]]] = {
    **{name: partial(_needed, needed=needed) for name, needed in _NEEDED.items()},
    "models": _models,
    "health": _health,
    "admin_paths": partial(_admin, paths=_POSTS),
    "admin_paths_in_disguise": partial(_admin, paths=_DISGUISED),
    "engine_metrics": _metrics,
    "unknown_path": _unknown,
    "tokenize_elsewhere": _tokenize_elsewhere,
}
CHECKS = tuple(_CHECKS)


async def probe(_bench: Bench, shared: SharedRig, notes: Notes) -> None:
    """Ask one after the other: the last one may take a shard out."""
    rig = await shared.rig()
    for name, check in _CHECKS.items():
        await notes.take(name, check(rig), rig.bench.patience_s * 2)
