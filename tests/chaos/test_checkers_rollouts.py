"""What became of the run: no rollout lost, and a fleet that comes back."""

import pytest

from gymproof.chaos.checkers import no_rollout_lost, recovers
from gymproof.chaos.checkers.base import Status
from gymproof.chaos.checkers.testing import fault, history, recovery, rollout
from gymproof.chaos.faults.base import Layer

PASS, FAIL, UNKNOWN = Status.PASS, Status.FAIL, Status.UNKNOWN
ONE, ALL = fault(1), fault(0, 1, 2)


def test_every_rollout_completes_while_a_shard_is_healthy():
    assert no_rollout_lost.check(history(ONE, rollout("r0"), rollout("r1", at=1.2))).status is PASS
    assert no_rollout_lost.check(history(ONE, rollout("r0"), rollout("r1", at=1.2, done=1))).status is FAIL


def test_the_evidence_says_how_far_a_lost_rollout_got_and_why():
    lost = history(ONE, rollout("r1", at=1.2, done=1))

    assert no_rollout_lost.check(lost).evidence == ("r1 (fault): 1 of 2 turns: turn 1: lost",)


def test_a_restart_of_the_router_excuses_no_lost_rollout():
    restart = fault(kind="router_restart", layer=Layer.ROUTER)

    assert no_rollout_lost.check(history(restart, rollout(at=1.2, done=1))).status is FAIL


def test_with_no_shard_left_rollouts_may_be_lost():
    run = history(ALL, rollout("b0", "baseline", at=0.0), rollout("r0", at=0.9, done=0), recovery(0, 1, 2))

    assert no_rollout_lost.check(run).status is PASS


@pytest.mark.parametrize(("phase", "at"), [("baseline", 0.0), ("recovery", 3.5)])
def test_with_no_shard_left_those_before_and_after_still_count(phase, at):
    run = history(ALL, rollout("x0", phase, at=at, done=0), recovery(0, 1, 2, recovered=3.0))

    assert no_rollout_lost.check(run).status is FAIL


def test_rollouts_on_the_way_to_recovery_may_be_lost():
    run = history(ALL, rollout("b0", "baseline"), rollout("x0", "recovery", at=2.1, done=0), recovery(recovered=3.0))

    assert no_rollout_lost.check(run).status is PASS


def test_no_rollout_to_count_is_no_pass():
    assert no_rollout_lost.check(history(ONE)).status is UNKNOWN
    assert no_rollout_lost.check(history(ALL, rollout(at=1.2, done=0))).status is UNKNOWN


def test_a_fleet_recovers_when_every_shard_serves_again():
    assert recovers.check(history(recovery(0, 1, 2))).status is PASS
    assert "shards [1] served nothing" in recovers.check(history(recovery(0, 2))).why


def test_a_fleet_that_lets_no_rollout_complete_has_not_recovered():
    assert "rollouts did not complete" in recovers.check(history(recovery(0, 1, 2, recovered=None))).why


def test_a_recovery_takes_no_longer_than_allowed():
    slow = history(recovery(0, 1, 2, healed=2.0, recovered=9.0), recover_within_s=5.0)

    assert "recovery took 7.0 s" in recovers.check(slow).why


def test_a_recovery_that_nobody_looked_at_is_unknown():
    assert recovers.check(history(ALL)).status is UNKNOWN
