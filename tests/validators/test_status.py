"""Statuses against the contract."""

import pytest

from gymproof.validators import (
    Behaviour,
    Contract,
    Handling,
    UnsafeForGymError,
    Verdict,
    judge_status,
    load_contract,
    right_status,
    shipped_versions,
    validate_status,
)

UNBOUNDED = sorted(load_contract().unbounded_statuses())


@pytest.mark.parametrize("role", ["retry", "give_up", "any"])
@pytest.mark.parametrize("status", UNBOUNDED)
def test_a_status_that_is_retried_without_bound_is_refused_in_every_role(status, role):
    with pytest.raises(UnsafeForGymError, match="retried without bound"):
        validate_status(status, role=role)


def test_the_error_names_file_key_and_value_and_what_would_be_right():
    with pytest.raises(UnsafeForGymError) as refused:
        validate_status(503, role="give_up", source="run.yaml", key="no_healthy_backend_status")

    assert str(refused.value).startswith("run.yaml: no_healthy_backend_status = 503: retried without bound")
    assert "Right: 409" in str(refused.value)
    assert refused.value.findings[0].value == 503


def test_the_error_is_a_value_error_so_that_pydantic_shows_it():
    assert issubclass(UnsafeForGymError, ValueError)


@pytest.mark.parametrize("version", shipped_versions())
def test_500_is_right_for_another_try_and_409_for_none_by_every_table(version):
    contract = load_contract(version=version)

    assert validate_status(500, role="retry", contract=contract).tries == 3
    assert validate_status(409, role="give_up", contract=contract).tries == 1


def test_500_as_a_last_word_is_refused_since_it_is_tried_again():
    with pytest.raises(UnsafeForGymError, match=r"3 times .* repeats what was meant as final\. Right: 409"):
        validate_status(500, role="give_up")


@pytest.mark.parametrize("status", [401, 404, 409, 422, 501, 599])
def test_a_status_that_ends_the_call_is_right_for_giving_up_and_wrong_for_another_try(status):
    assert validate_status(status, role="give_up").tries == 1
    with pytest.raises(UnsafeForGymError, match="not retried"):
        validate_status(status, role="retry")


def test_a_400_is_a_caution_because_its_words_can_be_scored():
    finding = judge_status(400)

    assert finding.verdict is Verdict.CAUTION
    assert "max_tokens" in finding.problem


@pytest.mark.parametrize("role", ["retry", "give_up"])
@pytest.mark.parametrize("status", [200, 204, 302, 304, 307])
def test_a_success_or_a_redirect_is_no_error_answer(status, role):
    with pytest.raises(UnsafeForGymError):
        validate_status(status, role=role)


@pytest.mark.parametrize(
    ("status", "verdict", "words"),
    [
        (200, Verdict.SAFE, "the answer"),
        (202, Verdict.UNSAFE, "taken for a success"),
        (204, Verdict.UNSAFE, "JSONDecodeError"),
        (302, Verdict.UNSAFE, "follows it past the router"),
        (409, Verdict.SAFE, "after 1 try"),
        (500, Verdict.SAFE, "tried 3 times within 1.0 s"),
        (520, Verdict.UNSAFE, "without bound"),
    ],
)
def test_each_class_of_status_has_its_reason(status, verdict, words):
    finding = judge_status(status)

    assert (finding.verdict, words in finding.problem) == (verdict, True), finding


@pytest.mark.parametrize("role", ["retry", "give_up", "any"])
def test_every_status_gets_a_verdict_in_every_role(role):
    findings = [judge_status(status, role=role) for status in range(200, 600)]

    assert {finding.verdict for finding in findings} == {Verdict.SAFE, Verdict.CAUTION, Verdict.UNSAFE} - (
        {Verdict.CAUTION} if role == "retry" else set()
    )
    assert all(finding.problem for finding in findings)
    assert all(finding.right for finding in findings if finding.verdict is not Verdict.SAFE)


def test_a_number_that_is_no_status_is_a_value_error():
    with pytest.raises(ValueError, match=r"200\.\.599"):
        validate_status(99)


def test_an_unknown_role_is_a_value_error_that_names_the_known_ones():
    with pytest.raises(ValueError, match="unknown role 'bogus'; known: retry, give_up, any"):
        validate_status(409, role="bogus")


@pytest.mark.parametrize("status", ["409", 409.0, None, True])
def test_what_is_no_whole_number_is_a_type_error_that_repeats_it(status):
    with pytest.raises(TypeError, match=f"a whole number such as 409, not {status!r}"):
        validate_status(status)


def test_another_contract_gives_another_verdict():
    mended = Contract("nemo-gym", "9", {503: Behaviour(Handling.RAISED, 3, "E")}, {})

    assert validate_status(503, role="retry", contract=mended).tries == 3
    hanging = Contract("nemo-gym", "9", {**load_contract().statuses, 503: Behaviour(Handling.HANGS, 1)}, {})
    with pytest.raises(UnsafeForGymError, match="never ends"):
        validate_status(503, contract=hanging)


@pytest.mark.parametrize(("client", "give_up"), [("nemo-gym", 409), ("openai", 424), ("verifiers", 424)])
def test_each_client_has_a_status_that_means_again_and_one_that_means_no_more(client, give_up):
    contract = load_contract(client)

    assert right_status("retry", contract) == 500
    assert right_status("give_up", contract) == give_up


def test_a_client_that_never_tries_again_has_no_status_for_it():
    contract = Contract("stubborn", "1", {500: Behaviour(Handling.RAISED, 1, "E")}, {})
    with pytest.raises(ValueError, match="no status makes stubborn 1 retry"):
        right_status("retry", contract)


def test_a_400_is_scored_by_nemo_gym_alone():
    assert judge_status(400, contract=load_contract("openai")).verdict is Verdict.SAFE
