"""The contract as a value, its JSON form, and the shipped tables."""

import math
import subprocess
import sys

import pytest

from gymproof.validators import (
    Behaviour,
    Contract,
    Difference,
    Handling,
    contract_of,
    differences,
    load_contract,
    shipped_clients,
    shipped_versions,
)
from gymproof.validators.cases import FAULT_CASES, STATUS_CASES
from gymproof.validators.contract import contract_from_json, contract_to_json

LOST = Behaviour(Handling.RAISED, 1, "ClientResponseError")
ENDLESS = Behaviour(Handling.UNBOUNDED, None)


def small(statuses=None, faults=None) -> Contract:
    return Contract("nemo-gym", "9.9.9", statuses or {200: LOST}, faults or {"never_answers": LOST})


TABLES = [(client, version) for client in shipped_clients() for version in shipped_versions(client)]


@pytest.mark.parametrize("client", shipped_clients())
def test_the_default_table_is_one_that_no_other_is_stricter_than(client):
    default = load_contract(client)
    endless = {name for name, row in default.faults.items() if row.handling is Handling.UNBOUNDED}
    for version in shipped_versions(client):
        other = load_contract(client, version)
        assert (other.timing.silence_s or math.inf) >= (default.timing.silence_s or math.inf)
        assert other.unbounded_statuses() <= default.unbounded_statuses()
        assert {name for name, row in other.faults.items() if row.handling is Handling.UNBOUNDED} <= endless


def test_versions_are_listed_oldest_first():
    assert shipped_versions() == ["0.4.0", "0.5.0", "0.5.1", "0.6.0", "0.7.0"]


def test_gym_0_7_0_bounds_statuses_but_not_refused_connections():
    contract = load_contract(version="0.7.0")

    assert contract.unbounded_statuses() == frozenset()
    assert contract.status(503).tries == 3
    assert contract.faults["connection_refused"] == ENDLESS


def test_gym_0_4_0_retries_five_statuses_without_bound():
    assert load_contract(version="0.4.0").unbounded_statuses() == {429, 502, 503, 504, 520}


def test_gym_0_4_0_gives_a_500_three_tries_and_a_409_one():
    contract = load_contract(version="0.4.0")

    assert contract.status(500) == Behaviour(Handling.RAISED, 3, "ClientResponseError")
    assert contract.status(409) == LOST


@pytest.mark.parametrize(("client", "version"), TABLES)
def test_every_shipped_table_has_a_row_for_every_case_and_no_other(client, version):
    contract = load_contract(client, version)

    assert set(contract.statuses) == set(STATUS_CASES) == set(range(200, 600))
    assert set(contract.faults) == set(FAULT_CASES)


@pytest.mark.parametrize(("client", "version"), TABLES)
def test_a_shipped_table_is_written_the_way_it_would_be_saved(client, version):
    contract = load_contract(client, version)

    assert contract_from_json(contract_to_json(contract)) == contract
    assert (contract.client, contract.version) == (client, version)
    assert contract.measured_with["python"]


def test_neighbouring_statuses_share_a_row_on_paper_and_part_again_when_read():
    contract = small({200: LOST, 201: LOST, 203: LOST, 204: ENDLESS})
    text = contract_to_json(contract)

    assert '"200-201"' in text
    assert '"203"' in text
    assert contract_from_json(text) == contract


def test_an_unknown_version_is_refused_with_the_list_of_the_shipped_ones():
    with pytest.raises(LookupError, match=r"nemo-gym 7\.7; shipped: nemo-gym 0\.4\.0, "):
        load_contract(version="7.7")


def test_an_unknown_client_is_refused_with_the_known_ones():
    with pytest.raises(LookupError, match="no contract table for curl; shipped: nemo-gym, openai, verifiers"):
        load_contract("curl")


@pytest.mark.parametrize(
    ("requirement", "named"),
    [("openai", ("openai", "3.57.0")), ("openai==2.7.2", ("openai", "2.7.2")), ("nemo-gym", ("nemo-gym", "0.4.0"))],
)
def test_a_table_is_asked_for_as_pip_would_have_it(requirement, named):
    contract = contract_of(requirement)

    assert (contract.client, contract.version) == named


@pytest.mark.parametrize("version", shipped_versions("openai"))
def test_the_openai_sdk_tries_409_and_every_5xx_three_times_and_nothing_without_end(version):
    contract = load_contract("openai", version)
    retried = {status for status, row in contract.statuses.items() if row.tries == 3}

    assert retried == {408, 409, 429, *range(500, 600)}
    assert not contract.unbounded_statuses()
    assert contract.faults["should_retry_false_409"].tries == 1
    assert contract.timing.silence_s == 600


def test_behind_verifiers_a_silent_server_is_asked_once_however_often_the_agent_asks():
    contract = load_contract("verifiers", "0.4.0")

    assert contract.faults["never_answers"] == Behaviour(Handling.RAISED, 1, "APITimeoutError")
    assert contract.faults["body_not_json"].tries == 3


@pytest.mark.parametrize("status", [0, 199, 600, 1000])
def test_a_number_outside_the_table_is_no_status(status):
    with pytest.raises(ValueError, match=rf"status {status} is not in .*200\.\.599"):
        load_contract().status(status)


def test_differences_name_both_rows_statuses_first():
    expected = small({200: LOST, 500: LOST}, {"never_answers": LOST})
    measured = small({200: LOST, 500: ENDLESS}, {"never_answers": LOST, "new_fault": ENDLESS})

    assert differences(expected, measured) == [
        Difference("status 500", LOST, ENDLESS),
        Difference("new_fault", None, ENDLESS),
    ]


def test_a_table_does_not_differ_from_itself_nor_from_a_part_of_itself():
    whole = load_contract()
    part = Contract(whole.client, whole.version, {500: whole.status(500)}, {})

    assert differences(whole, whole) == []
    assert differences(whole, part) == []


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (ENDLESS, "retried without bound"),
        (LOST, "raised after 1 try: ClientResponseError"),
        (Behaviour(Handling.RETURNED, 2), "returned after 2 tries"),
        (Behaviour(Handling.HANGS, 1), "hangs (requests seen: 1)"),
    ],
)
def test_a_behaviour_reads_as_a_phrase(behaviour, words):
    assert str(behaviour) == words


def test_importing_the_package_loads_nothing_heavy():
    heavy = ("aiohttp", "openai", "verifiers", "omegaconf", "typer", "rich", "nemo_gym", "yaml")
    code = f"import gymproof.validators, sys; print([m for m in {heavy!r} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert run.stdout.strip() == "[]"
