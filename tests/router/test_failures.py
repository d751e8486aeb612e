"""The table of outcomes."""

import pytest

from gymproof.router.answers import Statuses, failure_answer
from gymproof.router.failures import VERDICTS, Blame, Outcome, Reply, Retry, fair, may_go_on

WITH_STATUS = [o for o in Outcome if VERDICTS[o].reply in {Reply.TRY_AGAIN, Reply.NO_SHARD, Reply.GIVE_UP}]


def test_every_outcome_has_a_row():
    assert set(Outcome) == set(VERDICTS)


def test_reasons_are_distinct_codes():
    reasons = [verdict.reason for verdict in VERDICTS.values()]

    assert len(set(reasons)) == len(reasons)
    assert all(reason.isidentifier() for reason in reasons)


@pytest.mark.parametrize("outcome", [Outcome.BUSY, Outcome.REJECTED, Outcome.CLIENT_GONE, Outcome.ABORTED])
def test_what_is_not_the_shards_fault_is_not_held_against_it(outcome):
    assert VERDICTS[outcome].blame is Blame.NONE


def test_only_what_was_never_delivered_is_free():
    assert [o for o in Outcome if VERDICTS[o].retry is Retry.FREE] == [Outcome.UNREACHABLE]


def test_a_deadline_ends_the_request():
    assert VERDICTS[Outcome.HUNG].retry is Retry.NO


@pytest.mark.parametrize(
    ("outcome", "delivered", "remaining_s", "goes_on"),
    [
        (Outcome.BROKE, 1, 5.0, True),
        (Outcome.BROKE, 2, 5.0, False),
        (Outcome.BROKE, 1, 0.0, False),
        (Outcome.UNREACHABLE, 9, 5.0, True),
        (Outcome.UNREACHABLE, 0, -1.0, False),
        (Outcome.HUNG, 1, 5.0, False),
        (Outcome.CLIENT_GONE, 0, 5.0, False),
    ],
)
def test_another_shard_is_tried_within_the_budget_and_the_attempts(outcome, delivered, remaining_s, goes_on):
    assert may_go_on(outcome, delivered=delivered, max_attempts=2, remaining_s=remaining_s) is goes_on


@pytest.mark.parametrize(
    ("outcome", "had_s", "paused", "fair_outcome"),
    [
        (Outcome.HUNG, 10.0, False, Outcome.HUNG),
        (Outcome.HUNG, 4.0, False, Outcome.OUT_OF_TIME),
        (Outcome.HUNG, 10.0, True, Outcome.OUT_OF_TIME),
        (Outcome.BROKE, 4.0, True, Outcome.BROKE),
    ],
)
def test_a_deadline_is_not_held_against_a_shard_that_could_not_keep_it(outcome, had_s, paused, fair_outcome):
    assert fair(outcome, had_s=had_s, budget_s=10.0, paused=paused) is fair_outcome


@pytest.mark.parametrize("outcome", WITH_STATUS)
def test_no_answer_of_the_routers_own_is_a_400_or_retried_without_bound(outcome):
    for serving in (True, False):
        status = failure_answer(Statuses(), outcome, "m", serving=serving).status
        assert status not in {400, 429, 502, 503, 504, 520}
        assert 400 < status < 600


def test_a_failure_with_no_shard_left_says_that_no_shard_can():
    answer = failure_answer(Statuses(), Outcome.BROKE, "m", serving=False)

    assert answer.status == 409
    assert dict(answer.headers)["X-Router-Reason"] == "no_shard"


def test_the_upstream_status_is_in_a_header():
    answer = failure_answer(Statuses(), Outcome.BUSY, "m", serving=True, upstream_status=503)

    assert answer.status == 500
    assert dict(answer.headers)["X-Router-Upstream-Status"] == "503"
