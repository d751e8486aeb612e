"""What all tests share: no deadline for hypothesis, since a busy machine is no flaw of what is tested.

And launch files that run: where a node is a loopback address, `standins` has what starts there instead of vLLM. And
programs that hold a fleet, to be killed.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest
from hypothesis import settings

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")

STANDINS = Path(__file__).parent / "standins"
START_S = 60.0


class Launched:
    """A launch file under way, in a session of its own."""

    def __init__(self, argv, folder, env):
        self._output = folder / "output"
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                argv, cwd=folder, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def until(self, question, what):
        """What `question` answers once it is something; errors of a server that is not there yet are no answer."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"it ended before {what}: {self._output.read_text()}"
            with contextlib.suppress(OSError, urllib.error.HTTPError):
                if found := question():
                    return found
            time.sleep(0.1)
        return pytest.fail(f"not within {START_S} s: {what}; {self._output.read_text()}")

    def router_urls(self):
        """What it tells the user to give to NeMo-Gym."""

        def said():
            lines = self._output.read_text().splitlines()
            return [line.split(": ")[1].split() for line in lines if line.startswith("policy_base_url for NeMo-Gym")]

        return self.until(said, "it says where its routers are")[0]


def ask(url):
    """The choices of a chat completion."""
    body = orjson.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})
    request = urllib.request.Request(f"{url}/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return orjson.loads(reply.read())["choices"]


def free_ports(count, hosts):
    """The first of a row of ports that are free now on every host."""
    for first in range(20000 + os.getpid() % 5000, 32000, count):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for host in hosts:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server((host, port)))
            return first
    pytest.fail("no row of free ports")


@pytest.fixture(scope="session")
def launching():
    """The names above, for tests; `path` finds the stand-ins first, and `python` as the tests' own."""
    path = f"{STANDINS}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return SimpleNamespace(Launched=Launched, ask=ask, free_ports=free_ports, path=path, standins=STANDINS)


HARNESS = """
import asyncio, pathlib, signal
from {module} import {kind}

async def main():
    async with {kind}({shards}, folder=pathlib.Path({folder!r})) as fleet:
        {told}
        await asyncio.sleep(60)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
asyncio.run(main())
"""


@pytest.fixture
def harness(tmp_path):
    """A context manager around a program that holds a fleet of some `kind`; its value: the process, what it printed.

    `told` are statements about `fleet`, of which the last prints numbers.
    """

    @contextlib.contextmanager
    def holding(kind, shards, *told):
        values = {"module": kind.__module__, "kind": kind.__name__, "shards": shards, "folder": str(tmp_path)}
        code = HARNESS.format(**values, told="; ".join(told))
        argv = [sys.executable, "-c", code]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            yield process, [int(number) for number in process.stdout.readline().split()]

    return holding


@pytest.fixture(scope="session")
def interruptible():
    """A context manager around a program that will be interrupted; the program is gone at its end."""

    @contextlib.contextmanager
    def running(argv, **options):
        run = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            text=True,
            # A test run in the background ignores SIGINT, and its children would too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
            **options,
        )
        try:
            yield run
        finally:
            run.kill()
            run.wait()

    return running
