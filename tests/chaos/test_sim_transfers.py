"""A prefill and a decode shard hand a request over, and what is kept for nobody is given up."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import orjson
import pytest

from gymproof.chaos.fleet import SimFleet
from gymproof.chaos.history import Lease
from gymproof.chaos.waiting import wait_until

CHAT = "/v1/chat/completions"
WITHIN_S = 10.0
ASK = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "ignore_eos": True}
FOR_DECODE = {**ASK, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}


class Pair:
    """A prefill shard and a decode shard."""

    def __init__(self, fleet, session):
        self.fleet, self.session = fleet, session

    async def ask(self, shard, body, path=CHAT):
        async with self.session.post(self.fleet.shards[shard].url + path, json=body) as answer:
            return answer.status, await answer.read()

    async def prefill(self, path=CHAT, **fields):
        status, answer = await self.ask(0, FOR_DECODE | fields, path)
        assert status == 200
        return orjson.loads(answer)["kv_transfer_params"]

    async def metric(self, shard, name):
        async with self.session.get(self.fleet.shards[shard].url + "/metrics") as page:
            return [line.split()[1] for line in (await page.text()).splitlines() if line.startswith(name)]

    def leases(self):
        return [served.lease for served in self.fleet.served() if served.leg == "prefill"]

    async def released(self, lease):
        assert await wait_until(lambda: self.leases() == [lease], WITHIN_S), f"the lease is {self.leases()}"


@pytest.fixture
def pair(tmp_path):
    """Runs a story with a pair of shards; its value is the story's."""

    @asynccontextmanager
    async def opened(**options):
        async with (
            SimFleet(2, folder=tmp_path, prefill=1, **options) as fleet,
            aiohttp.ClientSession() as session,
            asyncio.timeout(3 * WITHIN_S),
        ):
            yield Pair(fleet, session)

    async def run(story, options):
        async with opened(**options) as shards:
            return await story(shards)

    return lambda story, **options: asyncio.run(run(story, options))


@pytest.mark.parametrize(
    ("path", "fields"),
    [(CHAT, {}), ("/v1/completions", {"prompt": "Hi"}), ("/v1/responses", {"input": "Hi", "max_output_tokens": 1})],
)
def test_what_was_kept_is_read_once(path, fields, pair):
    async def story(shards):
        params = await shards.prefill(path, **fields)
        assert shards.leases() == [Lease.PINNED]
        first = await shards.ask(1, {**ASK, **fields, "kv_transfer_params": params}, path)
        assert shards.leases() == [Lease.READ]
        second, answer = await shards.ask(1, {**ASK, **fields, "kv_transfer_params": params}, path)
        alone = await shards.ask(1, {**ASK, **fields}, path)
        failed = await shards.metric(1, "vllm:nixl_num_failed_transfers_total")
        return first[0], second, orjson.loads(answer)["error"]["type"], alone[0], failed, shards.fleet.served()

    *seen, served = pair(story)

    assert seen == [200, 500, "InternalServerError", 200, ["1.0"]]
    prefill, decode, *_ = served
    assert (prefill.leg, decode.leg) == ("prefill", "decode")
    assert prefill.transfer == decode.transfer != ""


def test_a_stream_whose_blocks_cannot_be_had_ends_with_an_error(pair):
    async def story(shards):
        params = await shards.prefill()
        shards.fleet.shards[0].close()
        return await shards.ask(1, {**ASK, "stream": True, "kv_transfer_params": params})

    status, events = pair(story)

    assert status == 200
    assert b'"type":"InternalServerError"' in events
    assert events.endswith(b"data: [DONE]\n\n")


def test_a_lease_runs_out(pair):
    async def story(shards):
        await shards.prefill()
        await shards.released(Lease.EXPIRED)
        return await shards.metric(0, "vllm:nixl_num_kv_expired_reqs_total")

    assert pair(story, args=("--kv-lease-s", "0.05")) == ["1.0"]


def test_a_decode_shard_that_refuses_a_request_says_so_to_the_prefill_shard(pair):
    async def story(shards):
        params = await shards.prefill()
        status, _ = await shards.ask(1, {**ASK, "temperature": -1, "kv_transfer_params": params})
        await shards.released(Lease.REJECTED)
        return status

    assert pair(story) == 400


def test_what_a_killed_prefill_shard_kept_is_lost(pair):
    async def story(shards):
        await shards.prefill()
        shards.fleet.shards[0].signal("group", 9)
        await shards.fleet.shards[0].ensure_ready(WITHIN_S)
        return shards.leases()

    assert pair(story) == [Lease.LOST]


def test_an_aborted_request_leaves_nothing(pair):
    async def story(shards):
        asking = asyncio.create_task(shards.prefill(max_tokens=4000))
        prefill = shards.fleet.shards[0]
        assert await wait_until(lambda: prefill.in_flight() == 1, WITHIN_S), "no work got in flight"
        prefill.signal("server", 15)
        return await asking, shards.leases()

    assert pair(story) == (None, [Lease.NONE])


def test_without_a_connector_parameters_are_taken_and_nothing_comes_of_them(pair):
    async def story(shards):
        params = await shards.prefill()
        decode = {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": 1, "remote_request_id": "x"}
        status, _ = await shards.ask(1, {**ASK, "kv_transfer_params": decode})
        return params, status, shards.leases(), await shards.metric(0, "vllm:nixl_")

    assert pair(story, kv_connector=False) == (None, 200, [Lease.NONE], [])
