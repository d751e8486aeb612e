"""The real OpenAI SDK, where it is installed."""

import asyncio
import functools
import importlib.metadata

import pytest

from gymproof.validators import differences, load_contract, shipped_versions
from gymproof.validators.cases import FAULT_CASES, STATUS_CASES
from gymproof.validators.clients import CLIENTS, ClientUnavailableError, client_kind
from gymproof.validators.clients.openai_sdk import KIND, open_openai
from gymproof.validators.learn import learn, measure
from gymproof.validators.script import always, in_turn
from gymproof.validators.scripted_server import play
from gymproof.validators.wire import OK, answer, plain

pytest.importorskip("openai", reason="the extra `clients` has it")


def test_the_installed_sdk_behaves_as_its_shipped_table_says():
    if KIND.version() not in shipped_versions("openai"):
        pytest.skip(f"no table is shipped for openai {KIND.version()}")
    shipped = load_contract("openai", KIND.version())
    measured = measure("openai", KIND)

    assert differences(shipped, measured) == []
    assert measured.timing == shipped.timing


@pytest.mark.slow
def test_the_real_pauses_between_tries_change_nothing_but_the_time():
    statuses = {status: STATUS_CASES[status] for status in (200, 409, 424, 503)}
    faults = {name: FAULT_CASES[name] for name in ("connection_refused", "never_answers")}
    pace = KIND.pace.with_real_sleeps()
    measured = asyncio.run(
        learn(
            functools.partial(KIND.open, pace),
            statuses,
            faults,
            patience_s=pace.patience_s,
            heal_after_s=pace.heal_after_s,
        )
    )

    assert differences(load_contract("openai"), measured) == []


def test_fields_that_the_sdk_does_not_know_reach_the_server():
    async def scenario():
        async with play(always(OK)) as stage, open_openai() as client:
            body = {"model": "m", "messages": [], "return_tokens_as_token_ids": True}
            return (await client.chat(stage.base_url, **body)).object

    assert asyncio.run(scenario()) == "chat.completion"


def test_tokenize_is_asked_beside_v1_with_the_same_retries():
    async def scenario():
        case = in_turn([plain(503)], [answer(200, b'{"tokens": [1]}')])
        async with play(case) as stage, open_openai(KIND.pace) as client:
            return await client.tokenize(stage.base_url, model="m", messages=[]), stage.requests

    assert asyncio.run(scenario()) == ({"tokens": [1]}, 2)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_machine_without_a_client_is_told_what_to_install(monkeypatch, name):
    def missing(_name):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ClientUnavailableError, match=f"{name} is not installed: .*pip install"):
        client_kind(name).version()


def test_an_unknown_client_is_refused_with_the_known_ones():
    with pytest.raises(LookupError, match="unknown client 'curl'; known: nemo-gym, openai, verifiers"):
        client_kind("curl")
