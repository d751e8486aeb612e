"""Restarts under load: of the router and of a shard.

A router that is away for a moment costs nothing but time, as clients try again until it is back; what was under way
when it left costs the work, and an answer that was cut in the middle costs the rollout.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...asking import MODEL, chat_body, post
from ...history import Ending
from ...under_test import RouterError
from ...waiting import wait_until
from ..findings import Group, Word
from ..flaws import FAIL_OVER, READMIT
from .backends import DELTA, DONE, ok, plain, streamed
from .bench import BACK_WITHIN_S, Bench, Reply, Rig, SharedRig, tally
from .heavy import HeavyShard, heavy_shards
from .results import Notes, Result, safe
from .starting import first_line, none_up, one_missing

_WHOLE, _STREAMS, _TAKES_S = 20, 10, 1.5
_EVENTS = 15
_WORKERS, _PAUSE_S = 8, 0.02
_BEFORE_S, _DOWN_S = 1.0, 1.5
_SLACK_S = 5.0
_NAME = Group.RESTART.slug


async def _in_flight(rig: Rig) -> list[asyncio.Task[Reply]]:
    """Requests that are all at work at a shard, or as many of them as the router lets through."""
    whole = [rig.name("whole") for _ in range(_WHOLE)]
    streams = [rig.name("stream") for _ in range(_STREAMS)]
    rig.scripts |= dict.fromkeys(whole, plain(ok(), after_s=_TAKES_S))
    rig.scripts |= dict.fromkeys(streams, streamed([*[DELTA] * _EVENTS, DONE], _TAKES_S / _EVENTS))
    tasks = [asyncio.ensure_future(rig.chat(name)) for name in whole]
    for name in streams:
        body = chat_body(name, model=MODEL, max_tokens=16, stream=True)
        tasks.append(asyncio.ensure_future(rig.ask(post(rig.router.url, body))))
    await wait_until(lambda: all(rig.delivered(name) for name in (*whole, *streams)), _TAKES_S / 2)
    return tasks


def _drained(replies: Sequence[Reply], flaws: Sequence[str]) -> Result:
    """What became of what was in flight when SIGTERM came."""
    seen = f"{len(replies)} requests in flight at SIGTERM: {tally(replies)}"
    lost = [str(reply) for reply in replies if not reply.ok]
    right = (
        "On SIGTERM take no new connection, let all in flight end, then exit; or have another signal sent that does so."
    )
    torn = {Ending.TRUNCATED, Ending.BAD_HTTP, Ending.PENDING}
    if any(reply.ending in torn for reply in replies):
        return Result(Word.UNSAFE, seen, right, lost[:6])
    if lost:
        return Result(Word.BOUNDED, f"{seen}; {flaws[0] if flaws else 'lost'}", right, lost[:6])
    return safe(seen)


async def _drain(bench: Bench, notes: Notes, rig: Rig) -> None:
    """SIGTERM with requests in flight, and the start after it on the same port."""
    tasks = await _in_flight(rig)
    began = time.monotonic()
    ending = asyncio.ensure_future(rig.router.end(within_s=bench.deadline_s + _SLACK_S))
    replies = await asyncio.gather(*tasks)
    notes.note("sigterm_drains", _drained(replies, bench.flaws(replies)), time.monotonic() - began)
    code = await ending
    took = time.monotonic() - began
    if code is None:
        seen = f"it runs on {took:.1f} s after SIGTERM, {took - _TAKES_S:.1f} s after the last answer; killed"
        result = Result(Word.BOUNDED, seen, "Exit once nothing is in flight: schedulers kill what does not.")
    else:
        result = safe(f"it ends by itself {took:.1f} s after SIGTERM, with exit code {code}")
    notes.note("sigterm_ends", result, took)
    await notes.take("port_again", _again(bench, rig), bench.start_within_s + rig.bench.patience_s)


async def _again(bench: Bench, rig: Rig) -> Result:
    began = time.monotonic()
    right = "Bind with SO_REUSEADDR, so that connections of the old process do not keep the port from the new one."
    try:
        await rig.router.start()
        await bench.until_serving(rig.router.url)
    except RouterError as error:
        return Result(
            Word.UNSAFE, f"started again on its port, it does not serve: {first_line(error)}", right, [str(error)]
        )
    return safe(f"started again on its port, it serves after {time.monotonic() - began:.1f} s")


@dataclass
class _Load:
    """Short requests without a pause, each of another session, until `stop`; who answered and what was wrong."""

    bench: Bench
    url: str
    replies: list[tuple[str, Reply]] = field(default_factory=list)
    _on: bool = True

    async def work(self, worker: int) -> None:
        """One client."""
        number = 0
        while self._on:
            number += 1
            reply = await self.bench.ask_as(self.url, f"load.{worker}.{number}", "[wait=0.05]")
            self.replies.append((reply.content[:1], reply))
            await asyncio.sleep(_PAUSE_S)

    def stop(self) -> None:
        """Ask no more."""
        self._on = False

    def count(self, shard: str) -> int:
        """Answers of a shard so far."""
        return sum(name == shard for name, _ in self.replies)


async def _shard_killed(bench: Bench) -> Result:
    """SIGKILL to a shard under load; it comes back on its port."""
    name = f"{_NAME}-shard-killed"
    async with (
        heavy_shards(2, bench.guard, bench.records(name)) as shards,
        bench.router(name, [shard.url for shard in shards]) as router,
    ):
        await bench.until_serving(router.url)
        load = _Load(bench, router.url)
        workers = [asyncio.ensure_future(load.work(number)) for number in range(_WORKERS)]
        try:
            return await _strike(bench, load, shards)
        finally:
            load.stop()
            await asyncio.gather(*workers)


async def _strike(bench: Bench, load: _Load, shards: Sequence[HeavyShard]) -> Result:
    await asyncio.sleep(_BEFORE_S)
    victim = max(shards, key=lambda shard: load.count(shard.name))
    had = load.count(victim.name)
    victim.kill()
    await asyncio.sleep(_DOWN_S)
    await victim.start()
    began, before = time.monotonic(), load.count(victim.name)
    used = await wait_until(lambda: load.count(victim.name) > before, BACK_WITHIN_S)
    waited = time.monotonic() - began
    replies = [reply for _, reply in load.replies]
    back = (
        f"serves again {waited:.1f} s after it is back" if used else f"is not used {BACK_WITHIN_S:g} s after it is back"
    )
    seen = f"shard {victim.name} is killed after {had} answers and {back}; all answers: {tally(replies)}"
    lost = [str(reply) for reply in replies if not reply.ok][:5]
    if bad := bench.flaws(replies):
        return Result(Word.UNSAFE, f"{seen}; {bad[0]}", FAIL_OVER, lost)
    if lost or not used:
        return Result(Word.BOUNDED, seen, FAIL_OVER if used else READMIT, lost)
    return safe(seen)


CHECKS = ("sigterm_drains", "sigterm_ends", "port_again", "shard_killed", "none_up_at_start", "one_missing_at_start")


async def probe(bench: Bench, _shared: SharedRig, notes: Notes) -> None:
    """The router's own restart first, which also says how long a start takes; then three routers at once."""
    began = time.monotonic()
    async with bench.rig(_NAME) as rig:
        usual_s = time.monotonic() - began
        await _drain(bench, notes, rig)
    within_s = 4 * usual_s + 4 * bench.patience_s
    await notes.take_all(
        {
            "shard_killed": _shard_killed(bench),
            "none_up_at_start": none_up(bench, usual_s),
            "one_missing_at_start": one_missing(bench, usual_s),
        },
        within_s,
    )
