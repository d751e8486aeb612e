"""Every preset can be pasted, says what it lacks, and where its program is there, really routes and leaves nothing."""

import asyncio
import shlex
import socket
from pathlib import Path

import psutil
import pytest

from gymproof.chaos.asking import ask, chat_body, dial, post
from gymproof.chaos.conform.peers import PRESETS, Preset, PresetError, find, missing, nemo_rl, version
from gymproof.chaos.conform.peers import __main__ as launcher
from gymproof.chaos.fleet import SimFleet
from gymproof.chaos.guard import Guard
from gymproof.chaos.http1 import ResponseReader
from gymproof.chaos.processes import members
from gymproof.chaos.under_test import RouterUnderTest, Wiring, check_command

SERVES_WITHIN_S = 30.0  # after it has answered anything


def commands() -> list[str]:
    return [command for preset in PRESETS.values() for command in (preset.command, preset.affinity_command) if command]


def test_the_presets_stand_in_the_order_of_the_scoreboard():
    assert list(PRESETS) == [
        *("gymproof", "vllm-router", "sglang-router", "smg", "nginx", "haproxy", "litellm", "nemo-rl"),
    ]
    assert all(name == preset.name for name, preset in PRESETS.items())


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
def test_a_preset_says_how_it_was_set_up_and_how_to_get_it(preset: Preset):
    assert preset.title
    assert preset.install
    assert preset.settings
    assert "\n" not in preset.settings


@pytest.mark.parametrize("command", commands())
def test_a_command_needs_nothing_but_its_program(command: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shutil.which", lambda program, **_: f"/nowhere/{program}")

    check_command(command)


@pytest.mark.parametrize("command", commands())
def test_a_command_is_told_the_port_the_shards_and_the_deadline(command: str):
    words = shlex.split(command)

    assert any("{port}" in word for word in words)
    assert any(name in word for word in words for name in ("{backends}", "{backends_file}"))
    assert "{deadline_s" in command


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(PresetError, match=r"router 'ngnix': no such preset; known: gymproof, .*, nemo-rl"):
        find("ngnix")


def test_a_program_that_is_not_there_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)

    assert missing(find("haproxy")) == ("haproxy: no program 'haproxy' on PATH; to install it: apt-get install haproxy")
    assert version(find("haproxy")) == ""


def test_a_module_that_is_not_there_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    assert missing(find("nemo-rl")).startswith("nemo-rl: no module 'nemo_rl' in ")
    assert missing(find("nemo-rl")).endswith(f"to install it: {find('nemo-rl').install}")


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("nginx version: nginx/1.22.1", "1.22.1"),
        ("HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/", "2.6.12-1+deb12u4"),
        ("nothing of the kind", ""),
    ],
)
def test_a_version_is_found_in_what_a_program_says(said: str, found: str, tmp_path: Path, monkeypatch):
    program = tmp_path / "haproxy"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    assert version(find("haproxy")) == found


def test_our_own_version_comes_from_the_environment_of_the_program():
    assert version(find("gymproof")).count(".") == 2


@pytest.mark.parametrize("name", launcher.PROGRAMS)
def test_a_configuration_names_every_shard_and_listens_on_loopback_alone(name: str, tmp_path: Path):
    options = launcher.options(
        [
            *("--program", name, "--port", "8080", "--folder", str(tmp_path), "--deadline-s", "1.5"),
            *("--max-attempts", "2", "http://127.0.0.1:1", "http://127.0.0.1:2"),
        ]
    )

    text = launcher.configuration(options)

    assert "127.0.0.1:1" in text
    assert "127.0.0.1:2" in text
    assert "0.0.0.0" not in text
    assert any(deadline in text for deadline in ("1500ms", "1.5"))


class Told:
    """NeMo-RL's router, as far as its trainer speaks to it."""

    def __init__(self):
        self.failures: dict[str, int] = {}
        self.serving: list[str] = []

    def drain_backend_failures(self) -> dict[str, int]:
        drained, self.failures = self.failures, {}
        return drained

    def set_serving_backends(self, urls: list[str]) -> None:
        self.serving = urls


def test_nemo_rls_router_loses_a_dead_shard_at_the_second_probe_and_has_it_again_when_it_answers():
    pytest.importorskip("nemo_rl", reason="NeMo-RL is not on PyPI")
    told, fleet, seen = Told(), nemo_rl.ledger(["a", "b"]), []

    for b_answers in (True, False, False, True):
        nemo_rl.tick(fleet, told, [True, b_answers])
        seen.append(told.serving)

    assert seen == [["a", "b"], ["a", "b"], ["a"], ["a", "b"]]


def test_nemo_rls_router_loses_a_shard_on_which_requests_fail():
    pytest.importorskip("nemo_rl", reason="NeMo-RL is not on PyPI")
    told, fleet = Told(), nemo_rl.ledger(["a", "b"])
    told.failures = {"b": 2}

    nemo_rl.tick(fleet, told, [True, True])

    assert told.serving == ["a"]


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
def test_a_preset_routes_for_real_and_is_gone_afterwards(preset: Preset, tmp_path: Path):
    if reason := missing(preset):
        pytest.skip(reason)

    async def run() -> tuple[int, int, list[str]]:
        with Guard() as guard:
            async with SimFleet(2, folder=tmp_path / "fleet") as fleet:
                wiring = Wiring([shard.url for shard in fleet.shards], 2.0, 2, tmp_path)
                router = RouterUnderTest(preset.command, wiring, guard, start_within_s=preset.start_within_s)
                async with router:
                    leader = router._group.pid
                    await completes(router.url)
                    return leader, router.port, listening(leader)

    leader, port, addresses = asyncio.run(run())

    assert addresses
    assert all(address.startswith("127.") for address in addresses), addresses
    assert members(leader) == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


async def completes(url: str) -> None:
    """Wait for a 200: a router may answer before it knows its shards."""
    async with asyncio.timeout(SERVES_WITHIN_S):
        while (answer := await completion(url)) != 200:
            assert answer in (None, 404, 409, 429, 500, 502, 503)
            await asyncio.sleep(0.05)


async def completion(url: str) -> int | None:
    answer = ResponseReader()
    async with dial(url) as streams:
        await ask(streams, post(url, chat_body("peer", model="tiny", max_tokens=2)), answer)
    return answer.response().status if answer.whole else None


def listening(session: int) -> list[str]:
    return [
        connection.laddr.ip
        for pid in members(session)
        for connection in psutil.Process(pid).net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
