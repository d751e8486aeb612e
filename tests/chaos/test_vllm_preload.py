"""The process that forks servers, with a stand-in for vLLM whose server listens and whose engine is its child."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import psutil
import pytest

from gymproof.chaos.guard import Guard
from gymproof.chaos.ports import PortLease
from gymproof.chaos.vllm.inside.gymproof_preload import _PRELOAD
from gymproof.chaos.vllm.preload import Preload, PreloadError
from gymproof.chaos.waiting import wait_until

WITHIN_S = 20.0
SERVER = """
import os, sys, time
import setproctitle_stand_in as names
from vllm.entrypoints.launchers import launcher
from vllm.platforms.cpu import CpuPlatform

def main():
    CpuPlatform.check_and_update_config(None)
    print(sys.argv, os.environ["SHARD"], os.environ["VLLM_WORKER_MULTIPROC_METHOD"], flush=True)
    if "--fail" in sys.argv:
        raise ValueError("no such model")
    listening = launcher.create_server_socket(("127.0.0.1", int(sys.argv[2])))
    listening.listen()
    if os.fork() == 0:
        names.call_it("VLLM::EngineCore")
    time.sleep(60)
"""
LAUNCHER = """
import socket

def create_server_socket(address):
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(address)
    return listening
"""
PLATFORM = """
class CpuPlatform:
    @classmethod
    def check_and_update_config(cls, config):
        import os
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
"""
NAMES = """
def call_it(name):
    open("/proc/self/comm", "w").write(name)
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> dict[str, str]:
    """An environment whose PYTHONPATH has a vLLM of a few lines."""
    root = tmp_path / "site"
    sources = {
        "vllm.entrypoints.launchers.api_server.entry": SERVER,
        "vllm.entrypoints.launchers.launcher": LAUNCHER,
        "vllm.platforms.cpu": PLATFORM,
        "setproctitle_stand_in": NAMES,
    }
    for module in (*_PRELOAD, *sources):
        path = root.joinpath(*module.split("."))
        for package in path.relative_to(root).parents:
            (root / package).mkdir(parents=True, exist_ok=True)
            if str(package) != ".":
                (root / package / "__init__.py").touch()
        if not path.is_dir():
            path.with_suffix(".py").write_text(sources.get(module, ""))
    return {**os.environ, "PYTHONPATH": str(root)}


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def play(tmp_path, stand_in):
    """Runs a story with a preloaded process and a way to start servers on a port."""

    async def run(story):
        output = tmp_path / "preload.out"
        with Guard() as guard, PortLease() as lease, Preload(Path(sys.executable), stand_in, output, guard) as preload:
            await preload.ready(WITHIN_S)

            def start(*args):
                return preload.start(["--port", str(lease.port), *args], {"SHARD": "one"}, tmp_path / "server.out")

            await story(preload, start, lease.port)

    return lambda story: asyncio.run(run(story))


def test_a_server_is_forked_with_its_arguments_and_environment_and_an_engine_that_is_forked_too(play):
    async def story(_preload, start, port):
        server = start("--x")
        assert await wait_until(lambda: server.find("VLLM::EngineCore") is not None, WITHIN_S)
        assert server.tail() == f"['vllm', '--port', '{port}', '--x'] one fork"
        assert server.exit_code() is None
        assert os.getpgid(server.find("VLLM::EngineCore")) == server.pid
        server.close()
        server.close()
        assert server.exit_code() == -signal.SIGKILL

    play(story)


def test_a_killed_server_frees_its_port_though_its_engine_lives_and_another_takes_it(play):
    async def story(_preload, start, port):
        for _ in range(3):
            server = start()
            assert await wait_until(lambda: server.find("VLLM::EngineCore") is not None, WITHIN_S)  # noqa: B023
            assert listens(port)
            engine = server.find("VLLM::EngineCore")
            server.signal(signal.SIGKILL)
            assert await wait_until(lambda: server.exit_code() is not None, WITHIN_S)  # noqa: B023
            assert lives(engine)
            assert not listens(port)
            server.close()
            assert not lives(engine)

    play(story)


def test_a_server_that_fails_says_why(play):
    async def story(_preload, start, _port):
        server = start("--fail")
        assert await wait_until(lambda: server.exit_code() is not None, WITHIN_S)
        assert server.exit_code() == 1
        assert "ValueError: no such model" in server.tail()
        server.close()

    play(story)


def test_servers_end_with_the_process_that_forked_them(play):
    async def story(preload, start, _port):
        server = start()
        assert await wait_until(lambda: server.find("VLLM::EngineCore") is not None, WITHIN_S)
        pids = [server.pid, server.find("VLLM::EngineCore")]
        preload._process.stdin.close()
        assert await wait_until(lambda: not any(map(lives, pids)), WITHIN_S)
        assert await wait_until(lambda: server.exit_code() is not None, WITHIN_S)
        with pytest.raises(PreloadError, match="does not"):
            start()
        server.close()

    play(story)


def test_a_python_without_vllm_says_so(tmp_path):
    async def story():
        output = tmp_path / "preload.out"
        with Guard() as guard, Preload(Path(sys.executable), os.environ, output, guard) as preload:
            await preload.ready(WITHIN_S)

    with pytest.raises(PreloadError, match="No module named 'vllm'"):
        asyncio.run(story())


def test_a_preload_that_takes_too_long_is_an_error(tmp_path, stand_in):
    async def story():
        output = tmp_path / "preload.out"
        with Guard() as guard, Preload(Path(sys.executable), stand_in, output, guard) as preload:
            await preload.ready(0.0)

    with pytest.raises(PreloadError, match="not preloaded after 0 s"):
        asyncio.run(story())
