"""Size and load: what training sends at its peak, first at the shards directly, then through the router.

The machine's own pace is measured, not assumed: a router is judged by what it loses, and by how many times the direct
run's time it takes. The shards are processes of their own.
"""

import asyncio
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
from .bench import Bench, Reply, call, chat, flaw
from .heavy import HeavyShard, content_of, heavy_shards
from .results import Notes, Result, safe

_MIB = 1 << 20
_SHARDS = 2
_FILES = 16_384
_DEADLINE_S, _GRACE_S = 60.0, 10.0
_SLOWER, _SLACK_S = 20.0, 5.0  # times the direct run, and seconds, from which a router is slow whatever the machine


@dataclass(frozen=True, slots=True)
class _Load:
    """`count` requests at once with this message each."""

    what: str
    count: int
    text: Callable[[], str]


_LOADS: Mapping[str, _Load] = {
    "answers_of_8_mib": _Load("20 answers of 8 MiB at once", 20, lambda: f"[size={8 * _MIB}]"),
    "requests_of_4_mib": _Load("20 requests of 4 MiB at once", 20, lambda: "token " * (4 * _MIB // 6)),
    "requests_in_flight": _Load("1500 requests of 1 s at once", 1500, lambda: "[wait=1.0]"),
}
CHECKS = tuple(_LOADS)


@contextmanager
def open_files(wanted: int) -> Iterator[None]:
    """Let this process, and what it starts, have so many open files. Raises OSError where the machine forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise OSError(f"a load of 1500 requests needs {wanted} open files, and the hard limit is {hard}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _run(load: _Load, urls: Sequence[str]) -> tuple[float, list[tuple[Reply, bool]]]:
    """All requests at once, dealt out over `urls`: the seconds, and each reply with whether its content is right."""
    text = load.text()
    bodies = [chat(f"load.{number}", text) for number in range(load.count)]
    began = time.monotonic()
    dealt = zip(bodies, itertools.cycle(urls))
    replies = await asyncio.gather(
        *(call(url, post(url, body), within_s=_DEADLINE_S + _GRACE_S) for body, url in dealt)
    )
    took = time.monotonic() - began
    return took, [(reply, _right(body, reply)) for body, reply in zip(bodies, replies, strict=True)]


def _right(body: bytes, reply: Reply) -> bool:
    """Whether this is the answer to that request, whole: shard A's or B's."""
    try:
        got = str(orjson.loads(reply.body)["choices"][0]["message"]["content"])
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return False
    return got == content_of(got[:1], orjson.loads(body)["messages"][0]["content"])


async def _judge(bench: Bench, load: _Load, router: str, shards: Sequence[HeavyShard]) -> Result:
    direct, reference = await _run(load, [shard.url for shard in shards])
    failed = [reply for reply, right in reference if not right]
    if failed:
        raise RuntimeError(f"{len(failed)} of {load.count} fail even without the router: {failed[0]}")
    took, answers = await _run(load, [router])
    counts = Counter(str(reply.status or reply.ending) for reply, _ in answers)
    ends = ", ".join(f"{status} x{count}" for status, count in counts.most_common())
    slowest = max(reply.seconds for reply, _ in answers)
    seen = f"{load.what}: {ends}; {took:.1f} s, directly {direct:.1f} s"
    lines = [f"slowest answer {slowest:.2f} s, {took / direct:.1f} times the direct run"]
    flaws = [(found, reply) for reply, _ in answers if (found := flaw(bench.contract, reply))]
    wrong = [reply for reply, right in answers if reply.ok and not right]
    lines += [str(reply) for _, reply in flaws[:3]] + [f"another content: {reply.body[:200]!r}" for reply in wrong[:3]]
    if flaws or wrong:
        reasons = Counter(found for found, _ in flaws) + Counter({"an answer with another content": len(wrong)})
        right = "hold what the fleet holds: raise limits on connections, files, bodies and buffers, and queue the rest"
        return Result(Word.UNSAFE, f"{seen}; {_counted(reasons)}", right, lines)
    if set(counts) != {"200"}:
        right = "answer them all: the shards do, without the router"
        return Result(Word.BOUNDED, seen, right, lines)
    if took > _SLOWER * direct + _SLACK_S:
        return Result(Word.BOUNDED, f"{seen}: {took / direct:.0f} times as long", "do less per byte and request", lines)
    return safe(seen, lines)


def _counted(reasons: Counter[str]) -> str:
    return "; ".join(f"{count} times {reason}" for reason, count in reasons.most_common() if count)


async def probe(bench: Bench, notes: Notes) -> None:
    """One load after the other, on a machine that does nothing else for this judge."""
    name = Group.LOAD.name.lower()
    with open_files(_FILES):
        async with (
            heavy_shards(_SHARDS, bench.guard, bench.records(name)) as shards,
            bench.router(name, [shard.url for shard in shards], deadline_s=_DEADLINE_S) as router,
        ):
            await bench.until_serving(router.url)
            for check, load in _LOADS.items():
                await notes.take(check, _judge(bench, load, router.url, shards), (_DEADLINE_S + _GRACE_S) * 2)
