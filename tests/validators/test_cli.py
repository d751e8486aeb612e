"""The command: what it prints and what it leaves with."""

import asyncio
import functools
import json
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from gymproof.validators import Behaviour, Handling, load_contract
from gymproof.validators import cli as cli_module
from gymproof.validators import learn as learn_module
from gymproof.validators.clients import CLIENTS, ClientKind, ClientUnavailableError
from gymproof.validators.contract import contract_from_json
from gymproof.validators.learn import learn
from gymproof.validators.script import always
from gymproof.validators.scripted_server import play
from gymproof.validators.wire import plain

SHIPPED = load_contract(version="0.4.0")


def run(*arguments: str):
    result = CliRunner().invoke(cli_module.app, list(arguments), env={"COLUMNS": "120", "TERM": "dumb"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def yaml(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(
        "async_rl:\n"
        "  generation_router: {enabled: true, no_healthy_backend_status: 409}\n"
        "  generation_fleet_health: {enabled: true}\n"
        "  rollout_failure: {nemo_gym: {rollout_timeout_s: 3600}}\n"
    )
    return str(path)


@contextmanager
def serving(case):
    """Play a case on another thread, since the command runs a loop of its own."""
    started, stop = threading.Event(), None
    url = []

    async def scenario():
        nonlocal stop
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with play(case) as stage:
            url.append((stage.base_url, loop))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(scenario(),))
    thread.start()
    try:
        assert started.wait(10), "the scripted server did not start within 10 s"
        yield url[0][0]
    finally:
        url[0][1].call_soon_threadsafe(stop.set)
        thread.join(10)


def test_safe_statuses_leave_with_0():
    result = run("500", "409")

    assert result.exit_code == 0
    assert "tried 3 times" in result.stdout
    assert "safe, by nemo-gym 0.4.0" in result.stdout


def test_one_unsafe_status_leaves_with_1_and_its_reason():
    result = run("500", "504", "409")

    assert result.exit_code == 1
    assert "retried without bound" in result.stdout


def test_another_gym_version_has_another_verdict():
    result = run("503", "--gym", "0.7.0")

    assert result.exit_code == 0
    assert "safe, by nemo-gym 0.7.0" in result.stdout


def test_the_installed_gym_can_be_asked_for(monkeypatch):
    monkeypatch.setattr(ClientKind, "version", lambda _kind: "0.7.0")

    assert run("503", "--gym", "installed").exit_code == 0


def test_another_client_has_another_verdict():
    result = run("503", "--client", "openai")

    assert result.exit_code == 0
    assert "tried 3 times within 1.5 s" in result.stdout
    assert "safe, by openai 3.57.0 (--version knows 2.7.2 too)" in result.stdout


def test_json_has_a_verdict_for_all_and_one_for_each():
    result = run("500", "504", "--json")
    told = json.loads(result.stdout)

    assert (told["verdict"], told["version"]) == ("unsafe", "0.4.0")
    assert [(f["value"], f["verdict"]) for f in told["findings"]] == [(500, "safe"), (504, "unsafe")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name one thing to judge"),
        (["500", "--url", "http://127.0.0.1:1"], "only one thing can be judged at once"),
        (["--learn", "500"], "only one thing can be judged at once"),
        (["--config", "a.yaml", "--url", "http://127.0.0.1:1"], "only one thing can be judged at once"),
        (["\uff15\uff10\uff10"], "is not a status in 200..599"),
        (["0500"], "'0500' is not a status in 200..599"),
        (["-1"], "'-1' is not a status in 200..599"),
        (["409", "-500", "--json"], "'-500' is not a status in 200..599"),
        (["five hundred"], "'five hundred' is not a status"),
        (["99"], "'99' is not a status in 200..599"),
        (["500", "--gym", "7.7"], "no contract table for nemo-gym 7.7; shipped: nemo-gym 0.4.0"),
        (["500", "--client", "curl"], "no contract table for curl; shipped: nemo-gym, openai, verifiers"),
        (["--learn", "--client", "curl"], "unknown client 'curl'; known: nemo-gym, openai, verifiers"),
        (["--router-cmd", "true", "--url", "http://127.0.0.1:1"], "only one thing can be judged at once"),
        (["--router-cmd", "no-such-program-here"], "no program 'no-such-program-here' on PATH"),
        (["--url", "ftp://x"], "not an http:// or https:// URL"),
        (["--url", "http://127.0.0.1:1"], "no connection"),
        (["--config", "nowhere.yaml"], "No such file"),
        (["--no-such-option"], "No such option"),
        (["--url"], "requires an argument"),
    ],
)
def test_bad_input_leaves_with_2_and_says_what_is_wrong_without_a_traceback(arguments, words):
    result = run(*arguments)
    said = " ".join((result.stdout + result.stderr).split())

    assert result.exit_code == 2
    assert words in said
    assert "Traceback" not in said


def test_a_safe_configuration_leaves_with_0(yaml):
    result = run("--config", yaml)

    assert result.exit_code == 0, result.stdout


def test_an_override_after_two_dashes_is_judged_and_named(yaml):
    result = run("--config", yaml, "--", "async_rl.generation_router.no_healthy_backend_status=503")

    assert result.exit_code == 1
    assert "override async_rl.generation_router.no_healthy_backend_status=503" in result.stdout


def test_an_override_that_hydra_refuses_leaves_with_2(yaml):
    assert run("--config", yaml, "--", "~async_rl.nothing").exit_code == 2


def test_a_configuration_as_json_names_file_key_and_value(yaml):
    result = run("--json", "--config", yaml, "--", "++async_rl.generation_router.backend_timeout_s=4000")
    told = json.loads(result.stdout)

    assert (result.exit_code, told["verdict"]) == (1, "unsafe")
    assert told["findings"][0]["key"] == "async_rl.generation_router.backend_timeout_s"
    assert told["findings"][0]["value"] == 4000
    assert told["findings"][-1]["source"] == yaml


def test_bad_input_can_be_json_too():
    told = json.loads(run("--config", "nowhere.yaml", "--json").stdout)

    assert told["verdict"] == "unknown"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["abc"], "'abc' is not a status in 200..599"),
        ([], "name one thing"),
        (["500", "--gym", "7.7"], "no contract table"),
    ],
)
def test_input_that_is_refused_is_json_too_where_json_is_wanted(arguments, words):
    result = run("--json", *arguments)
    told = json.loads(result.stdout)

    assert (result.exit_code, told["verdict"], told["findings"]) == (2, "unknown", [])
    assert words in told["error"]


@pytest.mark.parametrize(("status", "code"), [(422, 0), (503, 1)])
def test_a_running_router_is_asked(status, code):
    with serving(always(plain(status))) as url:
        result = run("--url", url, "--hold-s", "0.1", "--json")

    assert result.exit_code == code, result.stdout


@pytest.fixture
def measured(monkeypatch):
    """Let the command measure whatever the test says, without the real client."""

    def set_measured(contract):
        monkeypatch.setattr(ClientKind, "version", lambda _kind: contract.version)
        monkeypatch.setattr(cli_module, "_measure", lambda _client, **_options: contract)

    return set_measured


def test_a_gym_that_behaves_as_its_table_says_leaves_with_0(measured):
    measured(SHIPPED)
    result = run("--learn")

    assert result.exit_code == 0
    assert "0 differ" in result.stdout


def test_a_gym_that_has_changed_leaves_with_1_and_the_row_that_differs(measured):
    mended = {**SHIPPED.statuses, 503: Behaviour(Handling.RAISED, 3, "ClientResponseError")}
    measured(replace(SHIPPED, statuses=mended))
    result = run("--learn")

    assert result.exit_code == 1
    assert "status 503" in result.stdout
    assert "retried without bound" in result.stdout
    assert "raised after 3 tries" in result.stdout


def test_a_version_without_a_table_is_compared_with_the_newest_and_told_so(measured):
    newest = load_contract(version="0.7.0")
    measured(replace(newest, version="0.9.9", measured_with={"aiohttp": "4"}))
    result = run("--learn")

    assert result.exit_code == 0
    assert "no table is shipped for nemo-gym 0.9.9: compared with 0.7.0" in result.stdout


def test_a_gym_can_be_compared_with_another_version(measured):
    measured(load_contract(version="0.7.0"))
    result = run("--learn", "--gym", "0.4.0")

    assert result.exit_code == 1
    assert "21 differ" in result.stdout


def test_what_was_measured_can_be_saved_as_a_table(measured, tmp_path):
    measured(SHIPPED)
    file = tmp_path / "nemo-gym.json"

    assert run("--learn", "--save", str(file)).exit_code == 0
    assert contract_from_json(file.read_text()) == SHIPPED


def test_a_table_that_cannot_be_saved_leaves_with_2(measured, tmp_path):
    measured(SHIPPED)

    assert run("--learn", "--save", str(tmp_path / "no" / "such" / "folder.json")).exit_code == 2


def test_differences_can_be_json(measured):
    measured(replace(SHIPPED, statuses={**SHIPPED.statuses, 200: SHIPPED.status(503)}))
    told = json.loads(run("--learn", "--json").stdout)

    assert (told["same"], told["cases"]) == (False, 561)
    assert told["differences"][0]["name"] == "status 200"
    assert told["differences"][0]["measured"]["handling"] == "unbounded"


def test_learning_without_gym_leaves_with_2_and_says_how_to_get_it(monkeypatch):
    def missing(_kind):
        raise ClientUnavailableError("nemo-gym is not installed: pip install 'gymproof[gym]'")

    monkeypatch.setattr(ClientKind, "version", missing)
    result = run("--learn")

    assert result.exit_code == 2
    assert "pip install" in result.stderr


@pytest.mark.gym
def test_the_installed_gym_is_measured_by_the_command(monkeypatch):
    try:
        CLIENTS["nemo-gym"].version()
    except ClientUnavailableError as error:
        pytest.skip(str(error))
    one_case = functools.partial(learn, statuses={503: always(plain(503))}, faults={})
    monkeypatch.setattr(learn_module, "learn", one_case)
    told = json.loads(run("--learn", "--json").stdout)

    assert (told["same"], told["cases"], told["version"]) == (True, 1, CLIENTS["nemo-gym"].version())
