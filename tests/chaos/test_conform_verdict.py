"""What hand-made runs say about a router, by the rules of a conformance run."""

from dataclasses import replace
from pathlib import Path

import pytest

from gymproof.chaos.checkers.testing import attempt, call, fault, history, recovery, rollout, served
from gymproof.chaos.conform.faults import fault_cases
from gymproof.chaos.conform.findings import Group, Word
from gymproof.chaos.conform.flaws import AFTERWARDS, UNDER_FAULT
from gymproof.chaos.conform.verdict import Run, doubt, finding, findings
from gymproof.chaos.conform.verdict import recovery as after
from gymproof.chaos.history import Ending, Outcome
from gymproof.chaos.runner import Result

CASES = {(case.check, case.group): case for case in fault_cases()}
BASELINE = (
    attempt("baseline-0.t0", status=200),
    served("baseline-0.t0"),
    rollout("baseline-0", "baseline"),
)


BACK = recovery(0, 1)


def run(*records, group=Group.ONE, check="kill_group", baseline=BASELINE, back=BACK):
    """A run of two shards; the load's calls are fault-0.t0, fault-1.t0, ..."""
    case = CASES[check, group]
    struck = (0,) if group is Group.ONE else (0, 1)
    made = history(fault(*struck), *baseline, *records, back, shards=2, deadline_s=1.5, grace_s=1.5)
    return Run(case, Result(case.case, {}, Path("records"), 1.0, made), "records")


def answered(number=0, *statuses, at=1.0, **fields):
    """One call of a rollout that got these answers, half a second apart, and was lost unless the last is a 200."""
    name = f"fault-{number}.t0"
    good = statuses[-1] == 200
    return [
        *(attempt(name, at + 0.5 * index, status=status, **fields) for index, status in enumerate(statuses)),
        served(name, shard=1, at=at),
        call(name, Outcome.RETURNED if good else Outcome.RAISED, at, took=0.5 * len(statuses)),
        rollout(f"fault-{number}", at=at, done=2 if good else 0),
    ]


SAFE_ONE = {
    "every call is answered": answered(0, 200),
    "a bounded retry saves the rollout": answered(0, 500, 500, 200),
}
FLAWED_ONE = {
    "late": (Word.UNSAFE, answered(0, 500, took=3.5)),
    "without end": (Word.UNSAFE, [*answered(0, 200), call("fault-1.t0", Outcome.CANCELLED)]),
    "retried without end": (Word.UNSAFE, answered(0, 503)),
    "unanswered": (Word.UNSAFE, answered(0, 500, ending=Ending.NO_ANSWER)),
    "cut": (Word.UNSAFE, answered(0, 200, ending=Ending.TRUNCATED)),
    "garbled": (Word.UNSAFE, answered(0, 200, ending=Ending.BAD_HTTP)),
    "redirected": (Word.UNSAFE, answered(0, 307)),
    "false success": (Word.UNSAFE, answered(0, 204)),
    "own 400": (Word.UNSAFE, answered(0, 400)),
    "changed": (Word.UNSAFE, answered(0, 200, response_sha256="other")),
    "lost": (Word.BOUNDED, answered(0, 500, 500, 500)),
}


@pytest.mark.parametrize("what", SAFE_ONE)
def test_with_a_fault_on_one_shard_safe_means_that_no_rollout_is_lost(what):
    found = finding(run(*SAFE_ONE[what]))

    assert (found.word, found.right) == (Word.SAFE, "")


@pytest.mark.parametrize("flaw", FLAWED_ONE)
def test_each_flaw_has_its_word_its_advice_and_its_evidence(flaw):
    word, records = FLAWED_ONE[flaw]
    found = finding(run(*records))

    assert found.word is word
    assert found.right.startswith(UNDER_FAULT[flaw].right.partition("{")[0])
    assert any("fault-" in line for line in found.evidence)


def test_every_flaw_is_in_the_tables_of_these_tests():
    assert {*FLAWED_ONE, "in vain"} == set(UNDER_FAULT)
    assert set(AFTERWARDS) == {"no rollouts", "idle"}


def test_a_changed_body_is_no_flaw_of_the_fault_where_every_body_is_changed():
    changed = (attempt("baseline-0.t0", response_sha256="other"), *BASELINE[1:])

    assert finding(run(*answered(0, 200, response_sha256="other"), baseline=changed)).word is Word.SAFE


@pytest.mark.parametrize(
    ("records", "word"),
    [
        (answered(0, 409), Word.SAFE),
        (answered(0, 200), Word.SAFE),
        ([*answered(0, 500, 500, 500), *answered(1, 409, at=4.0)], Word.SAFE),
        ([*answered(0, 500, 500, 500), *answered(1, 500, 409, at=4.0)], Word.SAFE),
        ([*answered(0, 500, 500, 500), *answered(1, 500, 500, 500, at=4.0)], Word.BOUNDED),
        ([*answered(0, 409), *answered(1, 503, at=4.0)], Word.UNSAFE),
    ],
    ids=["gives up", "serves", "has learned", "learns", "never learns", "without end"],
)
def test_with_a_fault_on_every_shard_safe_means_that_the_client_is_told_to_give_up(records, word):
    assert finding(run(*records, group=Group.ALL)).word is word


def test_a_fault_that_leaves_shards_well_excuses_nobody():
    assert finding(run(*answered(0, 409), group=Group.ALL, check="keepalive_race")).word is Word.BOUNDED


@pytest.mark.parametrize(
    ("records", "back", "word"),
    [
        ([], recovery(0, 1), Word.SAFE),
        ([rollout("recovery0-0", "recovery")], recovery(1, recovered=None), Word.BOUNDED),
        (
            [rollout("recovery0-0", "recovery"), rollout("recovery0-1", "recovery", done=0)],
            recovery(0, 1, recovered=None),
            Word.UNSAFE,
        ),
    ],
    ids=["all shards serve", "one shard stays out", "rollouts fail"],
)
def test_recovery(records, back, word):
    assert after(run(*answered(0, 200), *records, back=back)).word is word


def test_recovery_is_one_finding_for_both_scopes_the_worse_one():
    out = recovery(1, recovered=None)
    one, every = (
        run(*answered(0, 200)),
        run(*answered(0, 409), rollout("recovery0-0", "recovery"), group=Group.ALL, back=out),
    )
    found = [one for one in findings([one, every]) if one.group is Group.RECOVERY]

    assert [(one.check, one.word) for one in found] == [("kill_group", Word.BOUNDED)]
    assert "1.0 s after the healing; shards that served within" in found[0].seen


def test_clients_that_misbehave_are_judged_under_recovery():
    kept_out = run(
        *answered(0, 200),
        rollout("recovery0-0", "recovery"),
        group=Group.RECOVERY,
        check="hang_ups",
        back=recovery(1, recovered=None),
    )

    assert [(one.group, one.word) for one in findings([kept_out])] == [(Group.RECOVERY, Word.BOUNDED)]


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([fault(0, acted=False, detail="new ok")], "was not seen to act: new ok"),
        ([rollout("baseline-1", "baseline", done=0)], "a rollout failed before the fault"),
    ],
)
def test_a_run_that_proves_nothing_is_unknown(records, why):
    proves_nothing = run(*answered(0, 200), *records)

    assert why in doubt(proves_nothing.result)
    assert finding(proves_nothing).word is Word.UNKNOWN


@pytest.mark.parametrize(
    ("records", "lag_s", "word"),
    [
        (answered(0, 500, took=3.5), 0.1, Word.UNSAFE),
        (answered(0, 500, took=3.5), 0.9, Word.UNKNOWN),
        (answered(0, 504, took=1.5), 0.9, Word.UNKNOWN),
        (answered(0, 504), 0.9, Word.UNSAFE),
        (answered(0, 200), 0.9, Word.SAFE),
    ],
    ids=["late", "late as the judge was", "at its deadline", "at once", "well"],
)
def test_a_judge_that_was_late_itself_blames_nobody_for_being_late(records, lag_s, word):
    assert finding(replace(run(*records), lag_s=lag_s)).word is word


def test_a_run_that_no_request_met_is_unknown():
    assert doubt(run().result) == "no request met the fault"
