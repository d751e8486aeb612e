"""Virtual time: the loop, the network, and that whole runs on them repeat themselves byte for byte."""

import asyncio
import itertools
import time
from types import SimpleNamespace

import aiohttp
import pytest

from gymproof.chaos.checkers import judge
from gymproof.chaos.checkers.base import Status
from gymproof.chaos.clients.gym_like import GymLikeClient
from gymproof.chaos.explore.draw import NOT_VIRTUAL
from gymproof.chaos.legs import LINGER_ZERO
from gymproof.chaos.scenario import cases, find, shipped
from gymproof.chaos.virtual.client import VirtualClient
from gymproof.chaos.virtual.core import GYM_ROUTER_CORE, CoreError, load_core
from gymproof.chaos.virtual.loop import StandstillError, virtual_world
from gymproof.chaos.virtual.run import run_virtual

CORE = load_core(GYM_ROUTER_CORE)
VIRTUAL = [
    case
    for path in shipped()
    for case in cases(path)
    if not any(plan.kind in NOT_VIRTUAL for plan in case.scenario.fault)
]


class Peer(asyncio.Protocol):
    """Notes what it hears."""

    def __init__(self):
        self.heard = []

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.heard.append(data)

    def eof_received(self):
        self.heard.append("fin")

    def connection_lost(self, error):
        self.heard.append(type(error).__name__ if error else "closed")


def run(body):
    with virtual_world(0) as run_in_it:
        return run_in_it(body())


async def pair():
    """A server's and a client's end."""
    loop = asyncio.get_running_loop()
    server = Peer()
    await loop.create_server(lambda: server, "127.0.0.1", 80)
    _, client = await loop.create_connection(Peer, "127.0.0.1", 80)
    return server, client


def test_a_day_passes_at_once_and_every_clock_agrees():
    async def body():
        before, began = time.monotonic(), asyncio.get_running_loop().time()
        await asyncio.sleep(86_400)
        return time.monotonic() - before, asyncio.get_running_loop().time() - began

    began = time.perf_counter()
    assert run(body) == (86_400, 86_400)
    assert time.perf_counter() - began < 60
    assert time.monotonic() > 0.0


def test_a_deadlock_is_told_instead_of_waited_for():
    async def body():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StandstillError, match="everybody waits"):
        run(body)


def test_bytes_come_in_order_and_then_the_end():
    async def body():
        server, client = await pair()
        for piece in (b"a", b"b", b"c"):
            client.transport.write(piece)
        client.transport.close()
        await asyncio.sleep(1)
        return server.heard, client.heard

    assert run(body) == ([b"a", b"b", b"c", "fin", "closed"], ["closed"])


def test_lingering_for_no_time_resets():
    async def body():
        server, client = await pair()
        client.transport.get_extra_info("socket").setsockopt(1, 13, LINGER_ZERO)
        client.transport.abort()
        await asyncio.sleep(1)
        return server.heard

    assert run(body) == ["ConnectionResetError"]


def test_writing_to_a_closed_peer_is_answered_with_a_reset():
    async def body():
        server, client = await pair()
        server.transport.close()
        client.eof_received = lambda: True
        await asyncio.sleep(1)
        client.transport.write(b"late")
        await asyncio.sleep(1)
        return client.heard

    assert run(body) == ["ConnectionResetError"]


def test_nobody_listens_where_nothing_was_started():
    async def body():
        await asyncio.get_running_loop().create_connection(Peer, "127.0.0.1", 81)

    with pytest.raises(ConnectionRefusedError):
        run(body)


def test_a_stopped_process_takes_in_what_came_once_it_goes_on():
    async def body():
        server, client = await pair()
        process = asyncio.get_running_loop().network.ports[80].process
        process.stop()
        client.transport.write(b"a")
        server.transport.write(b"b")
        await asyncio.sleep(1)
        before = [*server.heard, *client.heard]
        process.go_on()
        await asyncio.sleep(1)
        return before, server.heard, client.heard

    assert run(body) == ([], [b"a"], [b"b"])


@pytest.mark.parametrize("name", ["kill_group", "hang_ups", "stall_body", "pause_abort", "dribble", "wedge_watch"])
def test_a_seed_gives_the_same_history_byte_for_byte(tmp_path, name):
    case = cases(find([name])[0])[-1]
    histories = []
    for number, seed in enumerate((7, 7, 8)):
        run_virtual(case, CORE, seed).write(tmp_path / str(number))
        histories.append((tmp_path / str(number)).read_bytes())

    assert histories[0] == histories[1] != histories[2]


@pytest.mark.parametrize("case", VIRTUAL, ids=lambda case: case.name)
def test_the_shipped_scenarios_pass_in_virtual_time_too(case):
    verdicts = judge(run_virtual(case, CORE, 0), case.scenario.checks)

    assert {name: verdict.why for name, verdict in verdicts.items() if verdict.status is not Status.PASS} == {}


@pytest.mark.parametrize("path", ["gymproof.nothing:here", "gymproof.router.embedded:nothing", "no_colon", ""])
def test_a_core_that_cannot_be_loaded_is_named_with_what_would_be_right(path):
    with pytest.raises(CoreError, match="MODULE:NAME"):
        load_core(path)


class Scripted:
    """A session whose posts end as they are told: with a status, or with an error."""

    def __init__(self, outcomes):
        self._outcomes = iter(outcomes)
        self.posts = 0

    async def post(self, *_args, **_kwargs):
        self.posts += 1
        outcome = next(self._outcomes)
        if isinstance(outcome, int):
            return SimpleNamespace(status=outcome, content=SimpleNamespace(read=self.read))
        raise outcome

    async def read(self):
        return b""


def test_the_virtual_client_repeats_what_the_tenacity_client_repeats():
    """After any five outcomes; a 200 ends each sequence."""
    outcomes = (500, 503, aiohttp.ServerDisconnectedError(), aiohttp.ClientPayloadError("cut"))

    async def tell(client_class, sequence):
        session, slept = Scripted([*sequence, 200]), []

        async def sleep(seconds):
            slept.append(seconds)

        client = client_class("http://127.0.0.1:1/v1", session, sleep=sleep)
        try:
            end = (await client._until_final_status("", b"")).status
        except aiohttp.ClientError as error:
            end = type(error)
        return session.posts, slept, end

    async def compare():
        for sequence in itertools.product(outcomes, repeat=5):
            assert await tell(VirtualClient, sequence) == await tell(GymLikeClient, sequence), sequence

    asyncio.run(compare())
