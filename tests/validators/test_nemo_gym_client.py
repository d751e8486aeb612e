"""The real NeMo-Gym client, where it is installed."""

import asyncio
import importlib.metadata
import sys

import pytest

from gymproof.validators import differences, load_contract
from gymproof.validators.cases import STATUS_CASES
from gymproof.validators.clients import ClientUnavailableError
from gymproof.validators.clients.nemo_gym import KIND, open_gym_client
from gymproof.validators.learn import learn, measure
from gymproof.validators.script import always, in_turn
from gymproof.validators.scripted_server import play
from gymproof.validators.wire import OK, answer, plain

gym = pytest.mark.gym


@pytest.fixture(autouse=True)
def _gym_is_needed(request):
    if request.node.get_closest_marker("gym"):
        try:
            KIND.version()
        except ClientUnavailableError as error:
            pytest.skip(str(error))


@gym
def test_the_installed_gym_behaves_as_its_shipped_table_says():
    version = KIND.version()
    shipped = load_contract(version=version)
    measured = measure("nemo-gym", KIND)

    assert differences(shipped, measured) == []
    assert measured.timing == shipped.timing


@gym
def test_the_client_opens_again_on_another_loop():
    async def scenario():
        async with play(always(OK)) as stage, open_gym_client() as client:
            return await client.chat(stage.base_url, model="m", messages=[])

    for _ in range(2):
        assert asyncio.run(scenario())["object"] == "chat.completion"


@gym
def test_a_second_client_is_refused_while_the_first_is_open():
    async def scenario():
        async with open_gym_client(), open_gym_client():
            pass

    with pytest.raises(RuntimeError, match="open in this process already"):
        asyncio.run(scenario())


@gym
def test_what_the_client_prints_goes_where_it_is_told(capsys):
    printed = []

    async def scenario():
        case = in_turn([plain(503)], [OK])
        async with play(case) as stage, open_gym_client(sleep_s=0.001, on_print=printed.append) as client:
            await client.chat(stage.base_url, model="m", messages=[])

    asyncio.run(scenario())

    assert len(printed) == 1
    assert "status=503" in printed[0]
    assert capsys.readouterr().out == ""


@gym
def test_every_call_goes_to_the_path_that_gym_uses():
    case = always(answer(200, b"{}"))

    async def scenario():
        async with play(case) as stage, open_gym_client() as client:
            await client.tokenize(stage.base_url, model="m", messages=[])
            await client.responses(stage.base_url, model="m", input="hi")
            await client.models(stage.base_url)
            return stage.requests

    assert asyncio.run(scenario()) == 3


@gym
def test_the_globals_of_gym_are_as_before_when_the_client_is_closed():
    async def scenario():
        async with open_gym_client(sleep_s=0.001):
            pass

    asyncio.run(scenario())
    server_utils, openai_utils = sys.modules["nemo_gym.server_utils"], sys.modules["nemo_gym.openai_utils"]

    assert server_utils._GLOBAL_AIOHTTP_CLIENT is None
    assert server_utils.asyncio is asyncio
    assert openai_utils.sleep is asyncio.sleep
    assert "print" not in vars(server_utils)
    assert "print" not in vars(openai_utils)


@gym
@pytest.mark.slow
def test_the_half_seconds_between_tries_change_nothing_but_the_time():
    statuses = {status: STATUS_CASES[status] for status in (200, 409, 500, 503)}
    measured = asyncio.run(learn(open_gym_client, statuses, {}, patience_s=12.0))

    assert dict(measured.statuses) == {status: load_contract().status(status) for status in statuses}


def test_a_machine_without_gym_is_told_what_to_install(monkeypatch):
    def missing(_name):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    with pytest.raises(ClientUnavailableError, match=r"pip install 'gymproof\[gym\]'"):
        KIND.version()


def test_a_python_too_old_for_gym_is_told_so(monkeypatch):
    def missing(_name):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setattr(sys, "version_info", (3, 11, 9))
    with pytest.raises(ClientUnavailableError, match=r"needs Python >= 3\.12 and this is 3\.11"):
        KIND.version()
