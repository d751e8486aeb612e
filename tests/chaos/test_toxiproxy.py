import asyncio
import os
import socket
import subprocess
import sys
import textwrap
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from gymproof.chaos.faults.base import Layer, Target
from gymproof.chaos.faults.cut import Cut
from gymproof.chaos.faults.dribble import Dribble
from gymproof.chaos.faults.latency import Latency
from gymproof.chaos.faults.refused import Refused
from gymproof.chaos.faults.reset import Reset
from gymproof.chaos.faults.stall import Stall
from gymproof.chaos.fleet import SimFleet
from gymproof.chaos.ports import PortLease
from gymproof.chaos.provision import ToxiproxyUnavailableError
from gymproof.chaos.toxiproxy import ToxicProxy, ToxiproxyError, ToxiproxyServer
from gymproof.chaos.waiting import wait_until
from gymproof.chaos.witness import Witness

pytestmark = pytest.mark.toxiproxy

FAULTS = [
    *(Refused(), Latency(), Latency(ms=200, jitter_ms=20), Stall(), Stall(stream="upstream"), Reset()),
    *(Reset(after_ms=50), Cut(), Cut(after_bytes=20), Dribble()),
]


@asynccontextmanager
async def echo_server():
    """The port of a server that sends back what it gets."""
    writers = []

    async def echo(reader, writer):
        writers.append(writer)
        while data := await reader.read(1024):
            writer.write(data)

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


async def says_hello(port: int) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(5.0):
            writer.write(b"hello")
            return await reader.readexactly(5) == b"hello"
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_a_network_fault_shows_its_symptoms_on_new_and_pooled_connections_and_heals(tmp_path, fault):
    async def story():
        async with SimFleet(1, folder=tmp_path) as fleet, ToxiproxyServer() as server:
            shard = fleet.shards[0]
            async with server.proxy(shard.port) as proxy:
                target = Target(shard, toxics=proxy)
                async with Witness([proxy.url]) as witness:
                    await fault.inject(target)
                    acts, seen = await witness.sees(fault)
                    assert acts, seen
                await fault.heal(target)
                await fault.heal(target)
                assert await proxy.toxics() == []
                async with Witness([proxy.url]):
                    pass  # entering it asks twice and raises if an answer is not right

    asyncio.run(story())


def test_network_faults_are_on_the_toxic_layer_and_say_so_when_there_is_none(tmp_path):
    assert {fault.layer for fault in FAULTS} == {Layer.TOXIC}

    async def story():
        async with SimFleet(1, folder=tmp_path) as fleet:
            for fault in FAULTS:
                with pytest.raises(ValueError, match="shard 0 has no Toxiproxy in front of it"):
                    await fault.inject(Target(fleet.shards[0]))

    asyncio.run(story())


def test_the_server_is_the_pinned_release_and_ends_with_its_context():
    async def story():
        async with ToxiproxyServer() as server:
            version, port = await server.version(), int(server.url.rpartition(":")[2])
            if not os.environ.get("TOXIPROXY_URL"):
                assert version == "2.12.0"
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0

    if os.environ.get("TOXIPROXY_URL"):
        pytest.skip("TOXIPROXY_URL is set: that server is not ours to end")
    asyncio.run(story())


def test_a_harness_that_is_killed_takes_its_server_along(tmp_path):
    harness = textwrap.dedent("""
        import asyncio
        from gymproof.chaos.toxiproxy import ToxiproxyServer

        async def main():
            async with ToxiproxyServer() as server:
                print(server.url.rpartition(":")[2], flush=True)
                await asyncio.sleep(60)

        asyncio.run(main())
        """)
    environment = {**os.environ, "TOXIPROXY_URL": "", "TMPDIR": str(tmp_path)}  # its log stays behind
    with subprocess.Popen(
        [sys.executable, "-c", harness], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        port = int(process.stdout.readline())
        process.kill()

    def gone() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) != 0

    assert asyncio.run(wait_until(gone, 10.0)), "the server outlives its harness"


def test_two_servers_in_one_process_do_not_disturb_each_other():
    async def story():
        async with (
            echo_server() as port,
            ToxiproxyServer() as first,
            ToxiproxyServer() as second,
            first.proxy(port, "same") as one,
            second.proxy(port, "same") as two,
        ):
            await asyncio.gather(one.disable(), two.add("latency", latency=1))
            assert await two.toxics() == ["latency-downstream"]
            assert await says_hello(two.port)
            with pytest.raises(ConnectionRefusedError):
                await says_hello(one.port)
            await one.enable()
            assert await says_hello(one.port)

    asyncio.run(story())


def test_of_a_server_that_runs_already_only_what_was_made_here_is_removed():
    async def story():
        async with echo_server() as port, ToxiproxyServer() as theirs, theirs.proxy(port, "theirs") as kept:
            async with ToxiproxyServer(theirs.url) as ours:
                assert ours.url == theirs.url
                async with ours.proxy(port, "a[b]/c d") as proxy:
                    assert await says_hello(proxy.port)
                with pytest.raises(ConnectionRefusedError):
                    await says_hello(proxy.port)
            assert await says_hello(kept.port)

    asyncio.run(story())


def test_the_environment_names_a_running_server_too(monkeypatch):
    async def story():
        async with ToxiproxyServer() as theirs:
            monkeypatch.setenv("TOXIPROXY_URL", theirs.url)
            async with ToxiproxyServer() as ours:
                assert ours.url == theirs.url

    asyncio.run(story())


def test_an_http_proxy_in_the_environment_is_not_asked(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)

    async def story():
        async with ToxiproxyServer() as server:
            assert await server.version()

    asyncio.run(story())


def test_an_answer_that_is_an_error_names_the_call_and_what_came():
    async def story():
        async with echo_server() as port, ToxiproxyServer() as server, server.proxy(port) as proxy:
            with pytest.raises(ToxiproxyError, match=r"POST http://.*/toxics: .*invalid toxic type"):
                await proxy.add("gremlin")
            await proxy.add("latency", latency=1)
            with pytest.raises(ToxiproxyError, match=r"POST http://.*/toxics: .*already exists"):
                await proxy.add("latency", latency=1)

    asyncio.run(story())


@pytest.mark.parametrize("status", [302, 403, 500, 503])
def test_a_status_that_the_library_lets_pass_is_an_error_too(status):
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/version":
            return web.json_response({"version": "0"})
        return web.Response(status=status, text="out of order")

    async def story():
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        with PortLease() as lease:
            await web.TCPSite(runner, "127.0.0.1", lease.port).start()
            try:
                async with ToxiproxyServer(f"http://127.0.0.1:{lease.port}") as server:
                    with pytest.raises(ToxiproxyError, match=f"POST .*/proxies: {status} out of order"):
                        async with server.proxy(1):
                            pass
            finally:
                await runner.cleanup()

    asyncio.run(story())


def test_a_url_where_nothing_answers_is_an_error_that_says_how_to_get_the_server():
    async def story(port: int) -> None:
        async with ToxiproxyServer(f"http://127.0.0.1:{port}"):
            pass

    with (
        PortLease() as lease,
        pytest.raises(ToxiproxyUnavailableError, match=r"(?s)No Toxiproxy server.*TOXIPROXY_URL"),
    ):
        asyncio.run(story(lease.port))


def test_a_toxic_that_the_server_does_not_let_go_of_goes_with_its_proxy():
    asked = []

    class Admin:
        async def call(self, verb, path, json=None):
            asked.append((verb, path, json))
            if verb == "get":
                return [{"name": "slicer-downstream"}]
            if path.endswith("/toxics/slicer-downstream"):
                raise ToxiproxyError("timed out")
            return None

    asyncio.run(ToxicProxy(Admin(), "p", 8001, 9001).clear())

    proxy = {"name": "p", "listen": "127.0.0.1:8001", "upstream": "127.0.0.1:9001", "enabled": True}
    assert asked[2:] == [("delete", "/proxies/p", None), ("post", "/proxies", proxy)]
