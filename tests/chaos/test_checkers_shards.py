"""What shards were given: the right bytes, not too often, cancelled in time, and nothing of another shard's fault."""

import pytest

from gymproof.chaos.checkers import body_intact, deliveries_bounded, fleet_untouched, upstream_cancelled
from gymproof.chaos.checkers.base import Status
from gymproof.chaos.checkers.testing import attempt, fault, history, served, shard_report
from gymproof.chaos.faults.base import Layer
from gymproof.chaos.history import Delivery, Ending

PASS, FAIL, UNKNOWN = Status.PASS, Status.FAIL, Status.UNKNOWN
CANCELLED, RUNNING = Delivery.CANCELLED, Delivery.RUNNING


def test_bodies_that_come_through_unchanged_pass():
    run = history(attempt(), served())

    assert body_intact.check(run).status is PASS


def test_a_rewritten_request_is_found():
    run = history(attempt(), served(request_sha256="other"))

    assert "shard 0 read another request" in body_intact.check(run).why


def test_a_rewritten_answer_is_found():
    run = history(attempt(response_sha256="other"), served())

    assert "no shard gave this answer" in body_intact.check(run).why


def test_an_answer_may_come_from_any_shard_that_worked_on_the_call():
    run = history(attempt(), served(shard=0, response_sha256="lost"), served(shard=1, at=0.05))

    assert body_intact.check(run).status is PASS


def test_a_shards_4xx_has_to_come_through_unchanged_too():
    refused = {"status": 400, "response_sha256": "too long"}

    assert body_intact.check(history(attempt(**refused), served(**refused))).status is PASS
    assert body_intact.check(history(attempt(status=400, response_sha256="x"), served(**refused))).status is FAIL


@pytest.mark.parametrize("status", [409, 500])
def test_an_error_of_the_routers_own_has_a_body_of_its_own(status):
    run = history(attempt(status=status, response_sha256="router"), served())

    assert body_intact.check(run).status is PASS


def test_a_success_that_no_shard_wrote_down_is_no_shards_answer():
    run = history(fault(1, kind="wrong_body", layer=Layer.SCRIPT), attempt(at=1.1), served("r1.t0"))

    assert body_intact.check(run).status is FAIL


def test_a_shard_that_was_killed_may_have_answered_without_writing_it_down():
    unheard = served(shard=1, at=1.0, took=None, ending=RUNNING, status=None, response_sha256="")

    assert body_intact.check(history(fault(1), attempt(at=1.0), unheard)).status is PASS
    assert body_intact.check(history(fault(2), attempt(at=1.0), unheard)).status is FAIL


def test_a_request_that_was_not_read_whole_has_no_hash_to_compare():
    run = history(attempt(ending=Ending.CLIENT_LEFT, status=None), served(request_sha256="", status=None))

    assert body_intact.check(run).status is PASS


def test_nothing_to_compare_is_no_pass():
    assert body_intact.check(history(attempt(""))).status is UNKNOWN


def test_work_that_ends_with_its_attempt_is_cancelled_in_time():
    run = history(attempt(took=1.0, status=500), served(took=1.2, ending=CANCELLED), cancel_within_s=0.5)

    assert upstream_cancelled.check(run).status is PASS


@pytest.mark.parametrize("took", [1.6, None])
@pytest.mark.parametrize("ending", [Ending.COMPLETE, Ending.CLIENT_LEFT])
def test_work_that_outlives_its_attempt_is_found(took, ending):
    run = history(attempt(took=1.0, ending=ending), served(took=took, ending=RUNNING), cancel_within_s=0.5)

    assert "shard 0 worked on" in upstream_cancelled.check(run).why


def test_each_delivery_is_held_to_the_attempt_it_came_from():
    first, second = attempt(at=0.0, took=1.0, status=500), attempt(at=1.5, took=5.0)
    left_behind = served(at=0.1, took=4.0)

    assert upstream_cancelled.check(history(first, second, left_behind)).status is FAIL
    assert upstream_cancelled.check(history(first, second, served(at=1.6, took=4.0))).status is PASS


@pytest.mark.parametrize(
    "deafening",
    [
        fault(0, kind="kill"),
        fault(0, kind="stop", parameters={"process": "server"}),
        fault(0, kind="black_hole", layer=Layer.SCRIPT),
        fault(0, kind="stall", layer=Layer.TOXIC),
    ],
)
def test_a_shard_that_cannot_hear_cannot_be_told(deafening):
    run = history(deafening, attempt(at=1.0, took=0.5, status=500), served(at=1.1, took=None, ending=RUNNING))

    assert upstream_cancelled.check(run).status is PASS


@pytest.mark.parametrize(
    "audible",
    [
        fault(0, kind="stop", parameters={"process": "engine"}),
        fault(0, kind="stall_body", layer=Layer.SCRIPT),
        fault(1, kind="kill"),
        fault(0, kind="kill", began=90.0, healed=95.0),
    ],
)
def test_a_shard_that_can_hear_has_to_be_told(audible):
    run = history(audible, attempt(at=1.0, took=0.5, status=500), served(at=1.1, took=None, ending=RUNNING))

    assert upstream_cancelled.check(run).status is FAIL


def test_a_shard_may_log_a_request_before_the_wiretap_does():
    first, second = attempt(at=0.0, took=1.0, status=500), attempt(at=1.5, took=5.0)

    assert upstream_cancelled.check(history(first, second, served(at=1.49, took=4.0))).status is PASS


def test_as_many_shards_as_allowed_may_see_one_attempt():
    two = [served(shard=shard, at=shard / 100) for shard in range(2)]
    three = [served(shard=shard, at=shard / 100) for shard in range(3)]

    assert deliveries_bounded.check(history(attempt(), *two)).status is PASS
    assert deliveries_bounded.check(history(attempt(), *three)).status is FAIL
    assert deliveries_bounded.check(history(attempt(), *three, max_attempts=3)).status is PASS


def test_each_attempt_of_a_call_has_deliveries_of_its_own():
    run = history(
        *(attempt(at=n, status=500) for n in range(3)),
        *(served(shard=n, at=n + 0.01) for n in range(3)),
    )

    assert deliveries_bounded.check(run).status is PASS


def test_a_healthy_shard_gets_a_request_once():
    run = history(attempt(), served(at=0.0), served(at=0.06))

    assert "shard 0 was given the same request 2 times" in deliveries_bounded.check(run).why


def test_a_shard_whose_connections_break_may_get_it_once_more():
    broken = fault(0, kind="reset", layer=Layer.TOXIC)
    twice = [served(at=1.0), served(at=1.03)]

    assert deliveries_bounded.check(history(broken, attempt(at=1.0), *twice)).status is PASS
    assert deliveries_bounded.check(history(broken, attempt(at=1.0), *twice, served(at=1.06))).status is FAIL


def test_what_a_healed_shard_reads_late_was_sent_by_an_earlier_attempt():
    frozen = fault(0, 1, 2, kind="stop", parameters={"process": "server"})
    attempts = [attempt(at=1.0, took=0.3, status=500), attempt(at=1.4, took=0.3, status=500), attempt(at=1.9, took=0.5)]
    late = [served(shard=shard, at=2.0, ending=CANCELLED) for shard in range(3)]

    assert deliveries_bounded.check(history(frozen, *attempts, *late)).status is PASS


def untouched(*records, **shard_two):
    """One shard of three was killed; shards 0 and 2 are to be untouched."""
    reports = [shard_report(0), shard_report(1, same_process=False), shard_report(2, **shard_two)]
    return fleet_untouched.check(history(fault(1), attempt(at=1.1), *records, *reports))


def test_a_shard_without_a_fault_stays_as_it_was():
    assert untouched(served(at=1.12)).status is PASS
    assert untouched(served(at=1.12), same_process=False).status is FAIL
    assert untouched(served(at=1.12), healthy=False).status is FAIL


def test_healthy_shards_work_on_during_the_fault():
    lost = attempt("r1.t0", at=1.2, status=500)

    assert untouched(lost, served(at=1.12, shard=2)).status is PASS
    assert untouched(served(at=1.12, shard=1)).status is PASS
    assert "nothing was served by shards [0, 2] during kill" in untouched(lost, served(at=1.12, shard=1)).why


def test_a_healthy_shards_work_is_not_thrown_away_while_its_client_waits():
    worked = served(at=1.12)
    waiting = attempt("r1.t0", at=1.2, took=1.5)
    thrown = served("r1.t0", at=1.25, took=0.1, ending=CANCELLED)

    assert "cancelled while its client waited" in untouched(worked, waiting, thrown).why


@pytest.mark.parametrize("ending", [Ending.CLIENT_LEFT, Ending.COMPLETE])
def test_work_may_be_cancelled_when_its_client_is_done(ending):
    worked = served(at=1.12)
    done = attempt("r1.t0", at=1.2, took=0.2, ending=ending, status=500)
    cancelled = served("r1.t0", at=1.25, took=0.3, ending=CANCELLED)

    assert untouched(worked, done, cancelled).status is PASS


def test_without_a_look_at_the_shards_nothing_is_known():
    assert fleet_untouched.check(history(fault(1), attempt(), served(), shard_report(0))).status is UNKNOWN


def test_with_a_fault_on_every_shard_there_is_none_to_leave_alone():
    assert fleet_untouched.check(history(fault(0, 1, 2), attempt())).status is PASS
