"""A shard of each kind, simulated and real: what one is held to, the other is.

The real one needs an interpreter that has vLLM (`gymproof.chaos.vllm.install` says where it is looked for).
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from gymproof.chaos.fleet import LocalFleet, LocalShard, SimFleet
from gymproof.chaos.portal import Portal
from gymproof.chaos.vllm.fleet import VllmFleet
from gymproof.chaos.vllm.install import VllmUnavailableError, find_vllm
from gymproof.chaos.waiting import wait_until

CHAT = "/v1/chat/completions"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(300))


def make_fleet(kind: str, folder) -> LocalFleet:
    if kind == "sim":
        return SimFleet(1, folder=folder)
    try:
        return VllmFleet(1, folder=folder, vllm=find_vllm())
    except VllmUnavailableError as error:
        pytest.skip(str(error).partition("\n")[0])


@pytest.fixture(scope="session", params=["sim", pytest.param("vllm", marks=pytest.mark.vllm)])
def stand(request, tmp_path_factory):
    """A shard of one kind, and a loop that it lives on."""
    fleet = make_fleet(request.param, tmp_path_factory.mktemp(request.param))
    with Portal() as portal, portal.inside(fleet):
        yield portal, fleet.shards[0]


@dataclass
class Stand:
    """A shard that serves, and a client session with it; how long anything may take, and what is said to be soon."""

    shard: LocalShard
    session: aiohttp.ClientSession
    within_s: float = 30.0
    soon_s: float = 3.0

    async def get(self, path: str) -> tuple[int, bytes]:
        async with self.session.get(path) as response:
            return response.status, await response.read()

    async def post(self, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        async with self.session.post(path, json=body, **options) as response:
            return response.status, orjson.loads(await response.read())

    @staticmethod
    def body(text: str = "Hi", tokens: int = 5, **fields: Any) -> dict[str, Any]:
        """Of a chat."""
        return {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "ignore_eos": True, **fields}

    async def chat(self, *text: str, **fields: Any) -> tuple[int, Any]:
        return await self.post(CHAT, self.body(*text, **fields))

    async def stream(self, path: str = CHAT, **fields: Any) -> list[Any]:
        """The events of a streamed answer that has ended as it should, parsed but for "[DONE]"."""
        async with self.session.post(path, json={**self.body(**fields), "stream": True}) as response:
            lines = (await response.text()).split("\n\n")
        assert lines.pop() == ""
        events = [line.removeprefix("data: ") for line in lines]
        return [event if event == "[DONE]" else orjson.loads(event) for event in events]

    async def metric(self, name: str) -> float:
        page = (await self.get("/metrics"))[1].decode()
        return next(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))

    def begin(self, work: Any) -> asyncio.Task:
        return asyncio.create_task(work)

    async def under_way(self, work: Any) -> asyncio.Task:
        """Begin one generation and wait until the engine is at it."""
        task = self.begin(work)
        await self.begun()
        return task

    async def begun(self, count: int = 1) -> None:
        """Wait until so many generations have reached the shard and the engine has begun one."""
        assert await wait_until(lambda: self.shard.in_flight() == count, self.within_s), (
            "no generation got to the shard"
        )
        await self.running(self.within_s, lambda running: running > 0)

    async def running(self, within_s: float, wanted: Callable[[float], bool]) -> None:
        """Wait until the engine runs as many requests as wanted."""
        async with asyncio.timeout(within_s):
            while not wanted(await self.metric("vllm:num_requests_running")):  # noqa: ASYNC110 - a server tells nobody
                await asyncio.sleep(0.01)

    async def ended_with(self) -> int | None:
        group = self.shard._group
        assert await wait_until(lambda: group.exit_code() is not None, self.within_s), "the server lives on"
        return group.exit_code()

    async def refuses_within(self, within_s: float) -> bool:
        """Whether the port comes to refuse connections in time."""
        last = time.monotonic() + within_s
        while time.monotonic() < last:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.shard.port)
            except ConnectionRefusedError:
                return True
            writer.transport.abort()
            await asyncio.sleep(0.02)
        return False

    async def counters(self) -> list[str]:
        """The series that a watch for progress looks at."""
        names = ("generation_tokens_total", "prompt_tokens_total", "prefix_cache_queries_total", "kv_cache_usage_perc")
        page = (await self.get("/metrics"))[1].decode()
        return [line for line in page.splitlines() if line.startswith(tuple(f"vllm:{name}{{" for name in names))]


@pytest.fixture
def play(stand) -> Callable[..., None]:
    """Runs a story with a shard that serves."""
    portal, shard = stand

    async def run(story):
        await shard.ensure_ready(Stand.within_s)
        async with asyncio.timeout(120.0), aiohttp.ClientSession(shard.url) as session:
            await story(Stand(shard, session))

    return lambda story: portal.call(run(story))
