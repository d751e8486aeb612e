"""The progress watch on simulated vLLM shards, whose engines are processes that stop for real."""

import asyncio
import contextlib
import signal
import time
from functools import partial

import orjson
import pytest

from gymproof.chaos.fleet import SimFleet
from gymproof.router import wedges
from gymproof.router.progress import read_metrics

CHAT = "/v1/chat/completions"
DEADLINE_S = 60.0
SETTINGS = {"stall_after_s": 1.0, "backend_timeout_s": DEADLINE_S, "policy": "least_outstanding"}
WATCHED_S = 3.0  # three times as long as a wedge takes


@contextlib.asynccontextmanager
async def staged(kit, folder, **settings):
    """A router in front of two shards; a token takes them 10 ms."""
    async with SimFleet(2, folder=folder, token_ms=10.0) as fleet:
        backends = [f"{shard.url}/v1" for shard in fleet.shards]
        async with kit.Stage(backends=backends, **SETTINGS | settings) as stage:
            yield fleet, stage


async def asking(stage, count, tokens):
    """Requests under way, as many on each shard."""
    message = {"role": "user", "content": "Hi"}
    body = orjson.dumps({"messages": [message], "max_tokens": tokens, "ignore_eos": True})
    ask = partial(stage.ask, body, CHAT, "POST", "Content-Type: application/json")
    tasks = [asyncio.create_task(ask()) for _ in range(count)]
    shards = stage.router.fleet.shards
    await stage.until(lambda: all(shard.in_flight == count / 2 for shard in shards), "both shards have requests")
    return tasks


async def tell(stage, shard, path):
    """Call one shard's own admin route."""
    assert (await (await stage.client(shard.port)).ask(b"", path)).status == 200


@pytest.mark.parametrize("process", ["engine", "server"])
def test_requests_on_a_stopped_shard_are_answered_by_the_other_long_before_the_deadline(
    kit, tmp_path, monkeypatch, process
):
    looked = []
    monkeypatch.setattr(wedges, "read_metrics", lambda *page: looked.append(page) or read_metrics(*page))

    async def story():
        async with staged(kit, tmp_path) as (fleet, stage):
            tasks = await asking(stage, 8, tokens=150)
            looked.clear()
            await stage.until(lambda: len(looked) >= 2 * len(fleet.shards), "the engines' numbers have been seen")
            fleet.shards[0].signal(process, signal.SIGSTOP)
            began = time.monotonic()
            statuses = {(await task).status for task in tasks}
            took_s = time.monotonic() - began
            ejected = stage.states()[0] in {"dead", "stale"}
            fleet.shards[0].signal(process, signal.SIGCONT)
            return statuses, took_s, ejected

    statuses, took_s, ejected = asyncio.run(story())

    assert statuses == {200}
    assert took_s < DEADLINE_S / 3
    assert ejected


@pytest.mark.parametrize(
    ("pause", "resume"), [("/pause?mode=keep", "/resume"), ("/sleep?level=1&mode=keep", "/wake_up")]
)
def test_a_paused_or_sleeping_shard_keeps_its_requests(kit, tmp_path, pause, resume):
    async def story():
        async with staged(kit, tmp_path) as (fleet, stage):
            tasks = await asking(stage, 4, tokens=100)
            await tell(stage, fleet.shards[0], pause)
            await asyncio.sleep(WATCHED_S)
            states, kept = stage.states(), stage.router.fleet.shards[0].in_flight
            await tell(stage, fleet.shards[0], resume)
            return states, kept, {(await task).status for task in tasks}

    assert asyncio.run(story()) == (["healthy", "healthy"], 2, {200})


def test_requests_that_merely_run_long_are_left_alone(kit, tmp_path):
    async def story():
        async with staged(kit, tmp_path) as (_fleet, stage):
            tasks = await asking(stage, 4, tokens=round(WATCHED_S / 0.01))
            return (
                {(await task).status for task in tasks},
                stage.states(),
                [s.drain() for s in stage.router.fleet.shards],
            )

    assert asyncio.run(story()) == ({200}, ["healthy", "healthy"], [(2, 0), (2, 0)])
