"""Verdicts are merged and doubted so that nothing unproven passes."""

import pytest

from gymproof.chaos.checkers import CHECKERS, judge
from gymproof.chaos.checkers.base import Status, passed, unknown, unless, worst
from gymproof.chaos.checkers.testing import (
    attempt,
    call,
    fault,
    history,
    recovery,
    rollout,
    served,
    shard_report,
)
from gymproof.chaos.history import Ending

PASS, FAIL, UNKNOWN = Status.PASS, Status.FAIL, Status.UNKNOWN


def good_run(**window):
    """One shard of three killed, and nothing lost."""
    return history(
        fault(1, **window),
        attempt("r0.t0", at=1.1),
        attempt("r1.t0", at=1.5),
        call("r0.t0", at=1.1),
        call("r1.t0", at=1.5),
        served("r0.t0", shard=0, at=1.12),
        served("r1.t0", shard=2, at=1.52),
        rollout("r0", at=1.1),
        rollout("r1", at=1.5),
        recovery(0, 1, 2),
        *(shard_report(shard, same_process=shard != 1) for shard in range(3)),
    )


def test_a_run_without_a_flaw_passes_every_checker():
    assert {name: verdict.status for name, verdict in judge(good_run()).items()} == dict.fromkeys(CHECKERS, PASS)


def test_only_the_named_checkers_judge():
    assert list(judge(good_run(), ["recovers", "within_deadline"])) == ["recovers", "within_deadline"]


def test_an_unknown_check_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown check 'fast': known are answered_exactly_once, .*fleet_untouched"):
        judge(good_run(), ["fast"])


def test_a_checker_that_crashes_has_not_passed(monkeypatch):
    def crash(_history):
        raise KeyError("shard")

    monkeypatch.setitem(CHECKERS, "recovers", crash)
    verdict = judge(good_run())["recovers"]

    assert (verdict.status, verdict.why) == (UNKNOWN, "the checker crashed: KeyError: 'shard'")


def test_a_fault_that_did_not_act_proves_nothing():
    verdicts = judge(good_run(acted=False, detail="the load ended first"))

    assert {verdict.status for verdict in verdicts.values()} == {UNKNOWN}
    assert "the fault kill was not seen to act: the load ended first" in verdicts["recovers"].why


def test_a_failure_stays_one_when_the_fault_did_not_act():
    run = good_run(acted=False)
    run.add(attempt("r2.t0", ending=Ending.TRUNCATED))

    assert judge(run)["answered_exactly_once"].status is FAIL


@pytest.mark.parametrize("empty", ["attempts", "rollouts"])
def test_a_run_that_recorded_nothing_proves_nothing(empty):
    run = good_run()
    getattr(run, empty).clear()

    assert PASS not in {verdict.status for verdict in judge(run).values()}


@pytest.mark.parametrize(
    ("statuses", "merged"),
    [
        ([PASS, PASS], PASS),
        ([PASS, UNKNOWN], UNKNOWN),
        ([PASS, UNKNOWN, FAIL], FAIL),
        ([], UNKNOWN),
    ],
)
def test_the_worst_verdict_is_that_of_the_run(statuses, merged):
    assert worst(statuses) is merged


def test_a_verdict_shows_some_of_the_evidence_and_counts_all_of_it():
    verdict = unless([f"offence {n}" for n in range(500)], "late answers", held="in time")

    assert verdict.why == "500 late answers: offence 0"
    assert len(verdict.evidence) == 20


def test_verdicts_say_what_held_or_what_is_missing():
    assert unless([], "late answers", held="in time") == passed("in time")
    assert unknown("no records").status is UNKNOWN
