"""Any router can be started, restarted on its port and ended, whatever its command looks like."""

import asyncio
import dataclasses
import signal
import socket
import sys
import textwrap
from pathlib import Path

import pytest

from gymproof.chaos.guard import Guard
from gymproof.chaos.under_test import RouterError, RouterUnderTest, Wiring, answers_http, fill

PROGRAM = textwrap.dedent("""
    import http.server, sys, os
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self): self.send_error(404)
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
""")


@pytest.fixture
def wiring(tmp_path: Path) -> Wiring:
    return Wiring(["http://127.0.0.1:1", "http://127.0.0.1:2"], 1.5, 2, tmp_path)


@pytest.fixture
def command(tmp_path: Path) -> str:
    (tmp_path / "router.py").write_text(PROGRAM)
    return f"{sys.executable} {tmp_path / 'router.py'} {{port}}"


def test_backends_become_one_argument_each_and_a_file(wiring: Wiring):
    argv = fill("sh --port={port} {backends} {backends_file} {deadline_s}", wiring, 80)

    assert argv[1:4] == ["--port=80", "http://127.0.0.1:1", "http://127.0.0.1:2"]
    assert Path(argv[4]).read_text().split() == list(wiring.backends)
    assert argv[5] == "1.5"


def test_a_router_with_another_working_directory_finds_its_files(wiring: Wiring, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(wiring.folder)
    argv = fill("sh {port} {folder} {backends_file}", dataclasses.replace(wiring, folder=Path()), 80)

    assert argv[2:] == [str(wiring.folder), str(wiring.folder / "backends.txt")]


def test_a_word_is_repeated_for_each_prefill_server(wiring: Wiring):
    prefill = dataclasses.replace(wiring, prefill=["http://127.0.0.1:3", "http://127.0.0.1:4"])

    assert fill("sh --prefill={prefill} {port}", prefill, 80)[1:] == [
        "--prefill=http://127.0.0.1:3",
        "--prefill=http://127.0.0.1:4",
        "80",
    ]
    assert fill("sh --prefill={prefill} {port}", wiring, 80)[1:] == ["80"]


def test_an_unknown_placeholder_is_refused_with_the_known_ones(wiring: Wiring):
    with pytest.raises(RouterError, match=r"bad placeholder 'ports'; known: \{port\}, \{backends\}"):
        fill("sh {ports}", wiring, 80)


def test_a_program_that_does_not_exist_is_named(wiring: Wiring):
    with pytest.raises(RouterError, match="no program 'no-such-router' on PATH"):
        fill("no-such-router --port {port}", wiring, 80)


def test_a_router_answers_on_its_port_again_after_a_restart_and_is_gone_afterwards(wiring: Wiring, command: str):
    async def run() -> tuple[int, list[bool]]:
        seen = []
        with Guard() as guard:
            async with RouterUnderTest(command, wiring, guard) as router:
                seen.append(await answers_http(router.url))
                await router.stop(signal.SIGKILL)
                seen.append(await answers_http(router.url))
                await router.start()
                seen.append(await answers_http(router.url))
        return router.port, seen

    port, seen = asyncio.run(run())

    assert seen == [True, False, True]
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_router_that_ends_at_once_is_an_error_with_what_it_printed(wiring: Wiring, tmp_path: Path):
    (tmp_path / "broken.py").write_text("raise SystemExit('no such option: --x')")

    async def run() -> None:
        with Guard() as guard:
            async with RouterUnderTest(f"{sys.executable} {tmp_path / 'broken.py'}", wiring, guard):
                pass

    with pytest.raises(RouterError, match="no such option: --x"):
        asyncio.run(run())


def test_a_router_that_never_listens_is_an_error_after_a_bound(wiring: Wiring):
    async def run() -> None:
        with Guard() as guard:
            async with RouterUnderTest("sleep 60", wiring, guard, start_within_s=0.2):
                pass

    with pytest.raises(RouterError, match=r"gave no HTTP answer in 0\.2 s: sleep 60"):
        asyncio.run(run())


def test_a_router_that_takes_connections_and_is_silent_is_given_up(wiring: Wiring, tmp_path: Path):
    listens = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(60)"
    (tmp_path / "silent.py").write_text(listens)

    async def run() -> None:
        with Guard() as guard:
            command = f"{sys.executable} {tmp_path / 'silent.py'} {{port}}"
            async with RouterUnderTest(command, wiring, guard, start_within_s=1.0):
                pass

    with pytest.raises(RouterError, match=r"no HTTP answer in 1 s"):
        asyncio.run(asyncio.wait_for(run(), 20.0))
