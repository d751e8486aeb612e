"""Size and load: what training sends at its peak, first at the shards directly, then through the router.

The machine's own pace is measured, not assumed: a router is judged by what it loses, and by how many times the direct
run's time it takes. The shards are processes of their own.
"""

import asyncio
import dataclasses
import itertools
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import orjson

from ...asking import post
from ..findings import Group, Word
from .bench import Bench, Reply, SharedRig, call, chat, tally
from .heavy import HeavyShard, content_of, heavy_shards
from .results import Notes, Result, safe

_MIB = 1 << 20
_SHARDS = 2
_FILES = 16_384
_DEADLINE_S, _GRACE_S = 60.0, 10.0
_ROUNDS = 3
_SLOWER, _SLACK_S = 20.0, 5.0  # times the direct run, and seconds, from which a router is slow whatever the machine


@dataclass(frozen=True, slots=True)
class _Load:
    """`count` requests with this message each, all begun within `over_s` seconds."""

    what: str
    count: int
    text: Callable[[], str]
    over_s: float = 0.0


_LOADS: Mapping[str, _Load] = {
    "answers_of_8_mib": _Load("20 answers of 8 MiB at once", 20, lambda: f"[size={8 * _MIB}]"),
    "requests_of_4_mib": _Load("20 requests of 4 MiB at once", 20, lambda: "token " * (4 * _MIB // 6)),
    # Not in one instant, which would measure how long a shard's process takes to accept them.
    "requests_in_flight": _Load("1500 requests in flight", 1500, lambda: "[wait=3.0]", over_s=2.0),
}
CHECKS = tuple(_LOADS)


@contextmanager
def open_files(wanted: int) -> Iterator[None]:
    """Let this process, and what it starts, have so many open files. Raises OSError where the machine forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise OSError(f"{wanted} open files are needed, and the hard limit is {hard}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@dataclass(frozen=True, slots=True)
class _Run:
    """What came of a load."""

    seconds: float
    replies: Sequence[Reply]
    right: Sequence[bool]  # whether each is the whole answer to its request


async def _run(load: _Load, urls: Sequence[str]) -> _Run:
    """Send it, dealt out over `urls`."""
    text = load.text()
    bodies = [chat(f"load.{number}", text) for number in range(load.count)]

    async def one(number: int, url: str) -> Reply:
        await asyncio.sleep(load.over_s * number / load.count)
        return await call(url, post(url, bodies[number]), within_s=_DEADLINE_S + _GRACE_S)

    began = time.monotonic()
    dealt = zip(range(load.count), itertools.cycle(urls), strict=False)
    replies = await asyncio.gather(*(one(number, url) for number, url in dealt))
    seconds = time.monotonic() - began
    return _Run(seconds, replies, [_right(body, reply) for body, reply in zip(bodies, replies, strict=True)])


def _right(body: bytes, reply: Reply) -> bool:
    """Whether this is the answer to that request, whole: shard A's or B's."""
    return reply.content == content_of(reply.content[:1], orjson.loads(body)["messages"][0]["content"])


async def _judge(bench: Bench, load: _Load, router: str, shards: Sequence[HeavyShard]) -> Result:
    """The best of some rounds, the first safe one being the last: on a starved machine shards look dead to a router."""
    rounds: list[Result] = []
    for _ in range(_ROUNDS):
        rounds.append(await _round(bench, load, router, shards))
        if rounds[-1].word is Word.SAFE:
            break
    best = min(rounds, key=lambda result: list(Word).index(result.word))
    others = [f"in another round: {result.seen}" for result in rounds if result is not best]
    return dataclasses.replace(best, evidence=[*best.evidence, *others])


async def _round(bench: Bench, load: _Load, router: str, shards: Sequence[HeavyShard]) -> Result:
    direct = await _run(load, [shard.url for shard in shards])
    if not all(direct.right):
        failed = next(reply for reply, right in zip(direct.replies, direct.right, strict=True) if not right)
        raise RuntimeError(f"{direct.right.count(False)} of {load.count} fail even without the router: {failed}")
    routed = await _run(load, [router])
    slower = routed.seconds / direct.seconds
    seen = f"{load.what}: {tally(routed.replies)}; {routed.seconds:.1f} s, directly {direct.seconds:.1f} s"
    flaws = Counter(bench.flaws(routed.replies))
    wrong = [reply for reply, right in zip(routed.replies, routed.right, strict=True) if reply.ok and not right]
    lines = [
        f"slowest answer {max(reply.seconds for reply in routed.replies):.2f} s, {slower:.1f} times the direct run"
    ]
    lines += [str(reply) for reply in routed.replies if not reply.ok][:5]
    if wrong:
        flaws["an answer with another content"] = len(wrong)
        lines += [f"another content: {wrong[0].body[:200]!r}"]
    if flaws:
        right = "Hold what the fleet holds: raise limits on connections, files, bodies and buffers, and queue the rest."
        return Result(Word.UNSAFE, f"{seen}; {_counted(flaws)}", right, lines)
    if not all(reply.ok for reply in routed.replies):
        return Result(
            Word.BOUNDED,
            seen,
            "Answer them all, as the shards do without the router: raise limits on bodies, connections and waiting.",
            lines,
        )
    if routed.seconds > _SLOWER * direct.seconds + _SLACK_S:
        return Result(
            Word.BOUNDED,
            f"{seen}: {slower:.0f} times as long",
            "Do less per byte and request: pass bodies on as bytes, and keep connections to shards open.",
            lines,
        )
    return safe(seen, lines)


def _counted(reasons: Counter[str]) -> str:
    return "; ".join(f"{count} times {reason}" for reason, count in reasons.most_common() if count)


async def probe(bench: Bench, _shared: SharedRig, notes: Notes) -> None:
    """One load after the other, on a machine that does nothing else for this judge."""
    name = Group.LOAD.slug
    with open_files(_FILES):
        async with (
            heavy_shards(_SHARDS, bench.guard, bench.records(name)) as shards,
            bench.router(name, [shard.url for shard in shards], deadline_s=_DEADLINE_S) as router,
        ):
            await bench.until_serving(router.url)
            for check, load in _LOADS.items():
                await notes.take(check, _judge(bench, load, router.url, shards), (_DEADLINE_S + _GRACE_S) * 2 * _ROUNDS)
