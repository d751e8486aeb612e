"""A backends file that changes under load: members come and go without a restart and without a lost request."""

import asyncio

import pytest

from gymproof.router.backends_file import POLL_S, parse_endpoints
from gymproof.router.config import ConfigError

CHANGES = 4
CLIENTS = 8


def lines(backends):
    return "".join(f"{backend.url}\n" for backend in backends)


def endpoints(backends):
    entries = "".join(f"- {{name: b{b.port}, address: 127.0.0.1, port: '{b.port}'}}\n" for b in backends)
    return f"endpoints:\n{entries}"


async def load(stage, done, statuses):
    client = await stage.client()
    while not done.is_set():
        statuses.append((await client.ask()).status)
    await client.close()


async def has_changed(stage, joining, leaving):
    before = len(joining.exchanges)
    await stage.until(lambda: len(joining.exchanges) > before + CLIENTS, "the joining shard serves")
    fleet = stage.router.fleet
    await stage.until(lambda: leaving.url not in [shard.url for shard in fleet.members], "the other one has left")


@pytest.mark.parametrize(("suffix", "text"), [("txt", lines), ("yaml", endpoints)])
def test_members_come_and_go_by_file_and_every_request_is_answered(kit, tmp_path, suffix, text):
    path = tmp_path / f"fleet.{suffix}"
    statuses = []

    def write(*backends):
        beside = tmp_path / "new"
        beside.write_text(text(backends))
        beside.replace(path)

    async def slow(exchange):
        await asyncio.sleep(0.05)
        exchange.send(kit.answer())

    async def story():
        pool = [kit.Backend(slow) for _ in range(3)]
        for backend in pool:
            await backend.start()
        write(*pool[:2])
        async with kit.Stage(backends_file=path, probe_interval_s=0.1) as stage:
            done = asyncio.Event()
            clients = [asyncio.create_task(load(stage, done, statuses)) for _ in range(CLIENTS)]
            for change in range(CHANGES):
                leaving, staying, joining = (pool[(change + place) % 3] for place in range(3))
                write(staying, joining)
                await has_changed(stage, joining, leaving)
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
