"""A backends file that changes under load: members come and go without a restart and without a lost request."""

import asyncio

import pytest

from gymproof.router.backends_file import POLL_S, parse_endpoints
from gymproof.router.config import ConfigError

CHANGES = 4
CLIENTS = 8


@pytest.mark.parametrize("suffix", ["txt", "yaml"])
def test_members_come_and_go_by_file_and_every_request_is_answered(kit, tmp_path, suffix):
    path = tmp_path / f"fleet.{suffix}"
    statuses = []

    def write(backends):
        if suffix == "txt":
            text = "".join(f"{backend.url}\n" for backend in backends)
        else:
            entries = "".join(f"- {{name: b{b.port}, address: 127.0.0.1, port: '{b.port}'}}\n" for b in backends)
            text = f"endpoints:\n{entries}"
        beside = tmp_path / "new"
        beside.write_text(text)
        beside.replace(path)

    async def slow(exchange):
        await asyncio.sleep(0.05)
        exchange.send(kit.answer())

    async def load(stage, done):
        client = await stage.client()
        while not done.is_set():
            statuses.append((await client.ask()).status)
        await client.close()

    async def story():
        pool = [kit.Backend(slow) for _ in range(3)]
        for backend in pool:
            await backend.start()
        write(pool[:2])
        stage = kit.Stage(backends_file=path, probe_interval_s=0.1)
        async with stage:
            done = asyncio.Event()
            clients = [asyncio.create_task(load(stage, done)) for _ in range(CLIENTS)]
            for change in range(CHANGES):
                joining, leaving = pool[(change + 2) % 3], pool[change % 3]
                before = len(joining.exchanges)
                write([pool[(change + 1) % 3], joining])
                await stage.until(
                    lambda j=joining, n=before: len(j.exchanges) > n + CLIENTS, f"the joining shard serves, {change}"
                )
                await stage.until(
                    lambda url=leaving.url: url not in [shard.url for shard in stage.router.fleet.members],
                    "it has left",
                )
            done.set()
            await asyncio.gather(*clients)
        for backend in pool:
            await backend.stop()
        assert [backend.abandoned for backend in pool] == [0, 0, 0]

    asyncio.run(asyncio.wait_for(story(), 60 * POLL_S))

    assert len(statuses) > CLIENTS * CHANGES
    assert set(statuses) == {200}


@pytest.mark.parametrize(
    "entry", ["{address: 7, port: 1}", "{address: h, port: 1, labels: [a]}", "{address: h, port: 1, labels: a}", "x"]
)
def test_an_endpoints_file_of_another_shape_is_refused_by_name(entry):
    with pytest.raises(ConfigError, match="f: is no llm-d endpoints file"):
        parse_endpoints(f"endpoints: [{entry}]", "f")
