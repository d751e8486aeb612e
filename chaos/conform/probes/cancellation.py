"""Clients that leave: what was asked of the shards for them has to end, and no shard is to blame for it.

An engine goes on with a request until its connection ends: whoever keeps it open lets it generate for nobody.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from ...asking import MODEL, chat_body, dial, post
from ...waiting import wait_until
from ..findings import Word
from .backends import DELTA, Delivery, ok, plain, streamed
from .bench import Bench, Reply, Rig, SharedRig, tally
from .results import Notes, Result, safe

_CLIENTS = 30
_SOON_S = 2.0
_AT_ALL_S = 6.0
_AFTERWARDS, _TAKES_S = 20, 0.05
_EVENT_S = 0.1
_GENERATES_S = 30.0
_CANCEL = "Close the connection to the shard, or reset its stream, as soon as the client's is closed."


async def _leave(rig: Rig, *, stream: bool) -> Result:
    """All clients ask, wait until shards work for them, and leave at once."""
    names = [rig.name("leaves") for _ in range(_CLIENTS)]
    events = [DELTA] * int(_GENERATES_S / _EVENT_S)
    long = streamed(events, _EVENT_S) if stream else plain(ok(), after_s=_GENERATES_S)
    rig.scripts.update(dict.fromkeys(names, long))
    go = asyncio.Event()
    clients = [asyncio.ensure_future(_client(rig, name, go, stream=stream)) for name in names]
    try:
        await wait_until(lambda: all(rig.delivered(name) for name in names), rig.bench.patience_s)
        began = [one for name in names for one in rig.delivered(name)]
        if stream:
            await asyncio.sleep(2 * _EVENT_S)  # so that they are in the middle of it
        go.set()
        left = time.monotonic()
        await asyncio.gather(*clients)
    finally:
        for client in clients:
            client.cancel()
    await wait_until(lambda: all(one.ended for one in began), _AT_ALL_S)
    return _judge(began, left, "streams" if stream else "whole answers")


async def _client(rig: Rig, name: str, go: asyncio.Event, *, stream: bool) -> None:
    body = chat_body(name, model=MODEL, max_tokens=4096, stream=stream)
    with suppress(OSError):
        async with dial(rig.router.url) as (_reader, writer):
            writer.write(post(rig.router.url, body))
            await go.wait()


def _judge(began: Sequence[Delivery], left: float, what: str) -> Result:
    if not began:
        return Result(
            Word.UNSAFE,
            f"no request of {_CLIENTS} for {what} reaches a shard",
            "Send them on to a shard while their clients wait.",
        )
    ends = sorted(one.ended - left for one in began if one.ended is not None)
    on = [one for one in began if one.ended is None]
    lines = [*(f"runs on: {one}" for one in on[:5]), f"ended after the clients had left: {_times(ends)}"]
    count = f"{len(began)} requests for {what} at shards, their clients leave"
    if on:
        return Result(Word.UNSAFE, f"{count}: {len(on)} run on for over {_AT_ALL_S:g} s", _CANCEL, lines)
    late = sum(end > _SOON_S for end in ends)
    if late:
        return Result(Word.BOUNDED, f"{count}: {late} end only after {_SOON_S:g} to {_AT_ALL_S:g} s", _CANCEL, lines)
    return safe(f"{count}: all are ended within {_SOON_S:g} s", lines)


def _times(seconds: Sequence[float]) -> str:
    return f"{seconds[0]:.2f} to {seconds[-1]:.2f} s" if seconds else "none"


async def _used(rig: Rig) -> tuple[Counter[str], list[Reply]]:
    """Which shards answer some requests of different sessions, and the answers."""
    names = [rig.name("used") for _ in range(_AFTERWARDS)]
    rig.scripts.update(dict.fromkeys(names, plain(ok(), after_s=_TAKES_S)))
    replies = await asyncio.gather(*(rig.chat(name, headers=rig.bench.session(name)) for name in names))
    return Counter(one.shard for name in names for one in rig.delivered(name)), list(replies)


async def _afterwards(rig: Rig, before: Counter[str]) -> Result:
    """The shards, which are well, are used as they were before."""
    shards, replies = await _used(rig)
    seen = f"afterwards {tally(replies)}; shards {_counted(shards)}, before {_counted(before)}"
    right = "Do not count a client that leaves as a shard's failure, nor against its breaker: it says nothing about it."
    if bad := rig.bench.flaws(replies):
        return Result(Word.UNSAFE, f"{seen}; {bad[0]}", right)
    if set(before) - set(shards) or not all(reply.ok for reply in replies):
        return Result(Word.BOUNDED, seen, right)
    return safe(seen)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} x{count}" for name, count in sorted(counts.items()))


CHECKS: Sequence[str] = ("whole_answers", "streams", "shards_afterwards")


async def probe(_bench: Bench, shared: SharedRig, notes: Notes) -> None:
    """One after the other, so that what was left running by one is not taken for the other's."""
    rig = await shared.rig()
    before, _ = await _used(rig)
    await notes.take("whole_answers", _leave(rig, stream=False), rig.bench.patience_s * 2)
    await notes.take("streams", _leave(rig, stream=True), rig.bench.patience_s * 2)
    await notes.take("shards_afterwards", _afterwards(rig, before), rig.bench.patience_s * 2)
