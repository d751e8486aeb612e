"""The contract as a value, its JSON form, and the shipped tables."""

import subprocess
import sys

import pytest

from gymproof.validators import Behaviour, Contract, Difference, Handling, differences, load_contract, shipped_versions
from gymproof.validators.cases import FAULT_CASES, STATUS_CASES
from gymproof.validators.contract import contract_from_json, contract_to_json

LOST = Behaviour(Handling.RAISED, 1, "ClientResponseError")
ENDLESS = Behaviour(Handling.UNBOUNDED, None)


def small(statuses=None, faults=None) -> Contract:
    return Contract("nemo-gym", "9.9.9", statuses or {200: LOST}, faults or {"never_answers": LOST})


def test_the_default_table_is_one_that_no_other_is_stricter_than():
    default = load_contract()
    endless = {name for name, row in default.faults.items() if row.handling is Handling.UNBOUNDED}
    for version in shipped_versions():
        other = load_contract(version=version)
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


@pytest.mark.parametrize("version", shipped_versions())
def test_every_shipped_table_has_a_row_for_every_case_and_no_other(version):
    contract = load_contract(version=version)

    assert set(contract.statuses) == set(STATUS_CASES) == set(range(200, 600))
    assert set(contract.faults) == set(FAULT_CASES)


@pytest.mark.parametrize("version", shipped_versions())
def test_a_shipped_table_is_written_the_way_it_would_be_saved(version):
    contract = load_contract(version=version)

    assert contract_from_json(contract_to_json(contract)) == contract
    assert contract.version == version
    assert contract.measured_with["aiohttp"]


def test_neighbouring_statuses_share_a_row_on_paper_and_part_again_when_read():
    contract = small({200: LOST, 201: LOST, 203: LOST, 204: ENDLESS})
    text = contract_to_json(contract)

    assert '"200-201"' in text
    assert '"203"' in text
    assert contract_from_json(text) == contract


def test_an_unknown_version_is_refused_with_the_list_of_the_shipped_ones():
    with pytest.raises(LookupError, match=r"nemo-gym 7\.7; shipped: nemo-gym 0\.4\.0, "):
        load_contract(version="7.7")


def test_an_unknown_client_is_refused_too():
    with pytest.raises(LookupError, match="no contract table for curl"):
        load_contract("curl")


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
    heavy = ("aiohttp", "omegaconf", "typer", "rich", "nemo_gym", "yaml")
    code = f"import gymproof.validators, sys; print([m for m in {heavy!r} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert run.stdout.strip() == "[]"
