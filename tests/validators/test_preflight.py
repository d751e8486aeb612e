"""A router command in front of scripted backends."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gymproof.validators import CannotTellError, Verdict, load_contract
from gymproof.validators import preflight as preflight_module
from gymproof.validators.findings import worst
from gymproof.validators.preflight import TROUBLES, judge_command
from gymproof.validators.router_process import arguments

GYM_ROUTER = (
    "gym-router serve --port {port} --backends-file {backends_file} --backend-timeout-s {deadline_s} "
    "--client {client} --probe-interval-s 0.1"
)
# Relays each call to the first backend and tells what went wrong with a 503; leaves its pid where it is told.
RELAY = """
import asyncio, os, pathlib, sys
import aiohttp
from aiohttp import web
port, pid_file, backend = int(sys.argv[1]), sys.argv[2], sys.argv[3]

async def relay(request):
    try:
        async with aiohttp.ClientSession() as session:
            async with session.request(request.method, backend + request.path, data=await request.read()) as answer:
                return web.Response(status=answer.status, body=await answer.read(), content_type="application/json")
    except aiohttp.ClientError:
        return web.Response(status=503)

async def serving(app):
    pathlib.Path(pid_file).write_text(str(os.getpid()))

app = web.Application()
app.router.add_route("*", "/{path:.*}", relay)
app.on_startup.append(serving)
web.run_app(app, host="127.0.0.1", port=port, print=None)
"""


def relay(tmp_path: Path) -> str:
    script = tmp_path / "relay.py"
    script.write_text(RELAY)
    words = map(shlex.quote, (sys.executable, str(script), "{port}", str(tmp_path / "pid"), "{backends}"))
    return " ".join(words).replace("'{port}'", "{port}").replace("'{backends}'", "{backends}")


def wait_until(condition, within_s: float, what: str) -> None:
    give_up = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < give_up, f"not within {within_s} s: {what}"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("client", ["nemo-gym", "openai"])
def test_the_own_router_passes_for_every_client(client):
    findings = asyncio.run(judge_command(GYM_ROUTER, load_contract(client)))
    told = {finding.key: finding for finding in findings}

    assert worst(findings) is Verdict.SAFE, "\n".join(map(str, findings))
    assert {f"{trouble}, {scope}" for trouble in TROUBLES for scope in ("one shard", "all shards")} <= set(told)


def test_a_relay_that_hands_on_what_it_meets_is_unsafe_and_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight_module, "TROUBLES", {key: TROUBLES[key] for key in ("429", "a reset connection")})
    findings = asyncio.run(judge_command(relay(tmp_path), load_contract()))
    told = {finding.key: finding for finding in findings}

    assert told["healthy"].verdict is Verdict.SAFE
    assert told["429, all shards"].value == 429
    assert told["a reset connection, one shard"].value == 503
    assert "without bound" in told["a reset connection, all shards"].problem
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_an_answer_that_does_not_come_is_unsafe(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight_module, "TROUBLES", {"silence": TROUBLES["silence"]})
    monkeypatch.setattr(preflight_module, "GRACE_S", 0.0)
    findings = asyncio.run(judge_command(relay(tmp_path), load_contract()))

    told = next(finding for finding in findings if finding.key == "silence, all shards")
    assert (told.verdict, "no whole answer within 2 s" in told.problem) == (Verdict.UNSAFE, True)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_router_too(tmp_path, signum, interruptible):
    main = "from gymproof.validators.cli import main; main()"
    command = [sys.executable, "-c", main, "--router-cmd", relay(tmp_path)]
    pid_file = tmp_path / "pid"
    with interruptible(command, stderr=subprocess.PIPE) as process:
        wait_until(lambda: pid_file.exists() and pid_file.read_text(), 30, "the router's start")
        router = int(pid_file.read_text())
        process.send_signal(signum)
        _, said = process.communicate(timeout=30)

    assert process.returncode not in (0, 1), said
    assert not is_alive(router)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", "cannot be filled in"),
        ("no-such-program-here --port {port}", "no program 'no-such-program-here' on PATH"),
        ("true --port {prot}", "cannot be filled in: 'prot'"),
        ("true '", "No closing quotation"),
    ],
)
def test_a_command_that_cannot_be_started_is_refused(command, words):
    with pytest.raises(CannotTellError, match=words):
        asyncio.run(judge_command(command, load_contract()))


def test_a_router_that_ends_at_once_is_refused_with_what_it_said():
    command = f"{shlex.quote(sys.executable)} -c 'import sys; sys.exit(\"no such model\")'"
    with pytest.raises(CannotTellError, match="the router ended with 1: no such model"):
        asyncio.run(judge_command(command, load_contract()))


def test_backends_become_arguments_of_their_own():
    values = {"port": 1, "deadline_s": 2, "client": "nemo-gym", "backends_file": "f"}
    _, *words = arguments("true -p {port} --urls {backends} --csv={backends_csv}", ["http://a", "http://b"], values)

    assert words == ["-p", "1", "--urls", "http://a", "http://b", "--csv=http://a,http://b"]
