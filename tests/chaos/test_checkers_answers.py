"""What a client got: whole answers, safe statuses, in time, and nothing that keeps it asking."""

import pytest

from gymproof.chaos.checkers import (
    answered_exactly_once,
    gym_safe_statuses,
    no_unbounded_retry,
    within_deadline,
)
from gymproof.chaos.checkers.base import Status
from gymproof.chaos.checkers.testing import attempt, call, fault, history, served
from gymproof.chaos.faults.base import Layer
from gymproof.chaos.history import Ending, Outcome

PASS, FAIL = Status.PASS, Status.FAIL
ROUTER_DOWN = fault(kind="router_restart", layer=Layer.ROUTER)
ALL_KILLED = fault(0, 1, 2)


@pytest.mark.parametrize(
    ("ending", "verdict"),
    [
        (Ending.COMPLETE, PASS),
        (Ending.CLIENT_LEFT, PASS),
        (Ending.TRUNCATED, FAIL),
        (Ending.NO_ANSWER, FAIL),
        (Ending.REFUSED, FAIL),
        (Ending.BAD_HTTP, FAIL),
        (Ending.PENDING, FAIL),
    ],
)
def test_each_attempt_gets_one_whole_answer(ending, verdict):
    assert answered_exactly_once.check(history(attempt(ending=ending))).status is verdict


@pytest.mark.parametrize("ending", [Ending.REFUSED, Ending.NO_ANSWER])
def test_a_router_that_is_down_cannot_answer(ending):
    during = history(ROUTER_DOWN, attempt(at=1.5, ending=ending, status=None))
    after = history(ROUTER_DOWN, attempt(at=2.5, ending=ending, status=None))

    assert answered_exactly_once.check(during).status is PASS
    assert answered_exactly_once.check(after).status is FAIL


def test_a_cut_answer_is_no_part_of_a_restart():
    run = history(ROUTER_DOWN, attempt(at=1.5, ending=Ending.TRUNCATED))

    assert answered_exactly_once.check(run).status is FAIL


def test_a_fault_on_a_shard_excuses_no_missing_answer():
    run = history(fault(1), attempt(at=1.5, ending=Ending.NO_ANSWER, status=None))

    assert answered_exactly_once.check(run).status is FAIL


def test_the_evidence_names_the_attempt_and_the_routers_reason():
    run = history(attempt("r3.t1", ending=Ending.TRUNCATED, took=0.25, reason="broke", detail="12 of 40 bytes"))

    assert answered_exactly_once.check(run).evidence == (
        "r3.t1 /v1/chat/completions: truncated 200 after 0.25 s (broke 12 of 40 bytes)",
    )


@pytest.mark.parametrize("status", [429, 502, 503, 504, 520])
def test_a_status_without_bound_is_never_safe(status):
    run = history(ALL_KILLED, attempt(status=status), served(status=status))

    assert "retried without bound" in gym_safe_statuses.check(run).why


@pytest.mark.parametrize("status", [301, 304, 307])
def test_a_redirect_is_never_safe(status):
    run = history(ALL_KILLED, attempt(status=status), served(status=status))

    assert gym_safe_statuses.check(run).status is FAIL


def test_a_success_has_to_come_from_a_shard():
    assert gym_safe_statuses.check(history(attempt(status=200), served(status=200))).status is PASS
    assert gym_safe_statuses.check(history(attempt(status=204), served(status=200))).status is FAIL
    assert gym_safe_statuses.check(history(attempt(status=200))).status is FAIL


def test_a_scripted_204_in_a_shards_place_is_no_excuse():
    scripted = fault(1, kind="status", layer=Layer.SCRIPT, parameters={"status": 204})
    run = history(scripted, attempt(at=1.5, status=204), served(at=1.5, status=200))

    assert gym_safe_statuses.check(run).status is FAIL


def test_an_untagged_request_may_succeed_by_itself():
    assert gym_safe_statuses.check(history(attempt("", path="/v1/models"))).status is PASS


def test_a_500_is_always_safe():
    assert gym_safe_statuses.check(history(fault(1), attempt(status=500))).status is PASS
    assert gym_safe_statuses.check(history(ALL_KILLED, attempt(status=500))).status is PASS


def test_giving_up_is_for_fleets_without_a_spare_shard():
    assert gym_safe_statuses.check(history(fault(1), attempt(status=409))).status is FAIL
    assert gym_safe_statuses.check(history(ALL_KILLED, attempt(status=409))).status is PASS


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_shards_own_4xx_is_passed_on(status):
    assert gym_safe_statuses.check(history(attempt(status=status), served(status=status))).status is PASS


def test_a_scripted_4xx_is_as_good_as_a_shards_own():
    scripted = fault(1, kind="status", layer=Layer.SCRIPT, parameters={"status": 404})

    assert gym_safe_statuses.check(history(scripted, attempt(at=1.5, status=404))).status is PASS
    assert gym_safe_statuses.check(history(scripted, attempt(at=5.0, status=404))).status is FAIL
    assert gym_safe_statuses.check(history(scripted, attempt(at=1.5, status=400))).status is FAIL


def test_a_400_of_the_routers_own_is_never_safe():
    run = history(ALL_KILLED, attempt(status=400), served("r9.t9", status=400))

    assert "a 400 of the router's own" in gym_safe_statuses.check(run).why


def test_a_number_outside_http_is_never_safe():
    assert gym_safe_statuses.check(history(attempt(status=999))).status is FAIL


def test_an_attempt_without_a_status_is_not_this_checkers_business():
    assert gym_safe_statuses.check(history(attempt(status=None, ending=Ending.NO_ANSWER))).status is PASS


@pytest.mark.parametrize(("took", "verdict"), [(0.1, PASS), (2.9, PASS), (3.1, FAIL), (None, FAIL)])
def test_an_attempt_ends_within_the_deadline_and_the_grace(took, verdict):
    run = history(attempt(took=took), deadline_s=2.0, grace_s=1.0)

    assert within_deadline.check(run).status is verdict


@pytest.mark.parametrize(("took", "verdict"), [(2.9, PASS), (3.1, FAIL)])
def test_a_scenario_may_ask_for_answers_long_before_the_deadline(took, verdict):
    run = history(attempt(took=took), deadline_s=60.0, answer_within_s=2.0, grace_s=1.0)

    assert within_deadline.check(run).status is verdict


@pytest.mark.parametrize(("tries", "verdict"), [(1, PASS), (3, PASS), (4, FAIL)])
def test_a_call_takes_no_more_attempts_than_gym_makes_of_500s(tries, verdict):
    run = history(*(attempt(at=n, status=500) for n in range(tries)), call(outcome=Outcome.RAISED))

    assert no_unbounded_retry.check(run).status is verdict


def test_different_calls_are_counted_apart():
    run = history(*(attempt(f"r{n}.t0", status=500) for n in range(9)), *(attempt(path="/tokenize") for _ in range(3)))

    assert no_unbounded_retry.check(run).status is PASS


def test_attempts_while_the_router_was_down_do_not_count():
    refused = [attempt(at=1.0 + n / 10, took=0.0, ending=Ending.REFUSED, status=None) for n in range(8)]

    assert no_unbounded_retry.check(history(ROUTER_DOWN, *refused, attempt(at=2.5))).status is PASS
    assert no_unbounded_retry.check(history(*refused)).status is FAIL


def test_a_call_that_the_harness_had_to_cancel_would_have_gone_on():
    assert no_unbounded_retry.check(history(attempt(), call(outcome=Outcome.CANCELLED))).status is FAIL
    assert no_unbounded_retry.check(history(attempt(), call(outcome=Outcome.RAISED))).status is PASS


def test_each_client_is_judged_by_its_own_contract():
    """NeMo-Gym retries a 503 without bound and takes a 409 as final; the OpenAI SDK tries both three times."""
    for status, client, verdict in (
        (503, "gym-like", FAIL),
        (503, "openai", PASS),
        (409, "nemo-gym", FAIL),
        (409, "openai", PASS),
        (424, "openai", FAIL),
    ):
        run = history(fault(1), attempt(status=status), client=client)
        assert gym_safe_statuses.check(run).status is verdict, (status, client)
