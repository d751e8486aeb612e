"""Two runs side by side, and a recorded one run again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gymproof.chaos.checkers import CHECKERS
from gymproof.chaos.checkers.base import Status, Verdict
from gymproof.chaos.choices import Setup
from gymproof.chaos.compare import Agreement, compare
from gymproof.chaos.history import Attempt, Call, Ending, Limits, Outcome
from gymproof.chaos.recording import HISTORY, Recording, RunFolder, load_run
from gymproof.chaos.runner import Result
from gymproof.chaos.scenario import Case, cases, find
from gymproof.chaos.summary import write_verdicts

GYM_CHAOS = str(Path(sys.executable).with_name("gym-chaos"))
CASE = cases(find(["kill_group"])[0])[0]
PATH = "/v1/chat/completions"
TIED = """
title = "A shard is killed as its second request is under way"
why = "The same moment on any machine."
scopes = ["one"]
load = { rollouts = 4, turns = 2, concurrency = 1, max_tokens = 40 }
[[fault]]
kind = "kill"
when = { shard = 1, requests = 2 }
"""


def run(
    folder: Path, calls: dict[str, list[int | Ending]], status: Status = Status.PASS, case: Case = CASE
) -> RunFolder:
    """A recorded run whose calls met these answers, one after the other."""
    folder.mkdir(parents=True)
    with Recording(folder, case, Setup(out=folder)) as recording:
        history = recording.begin(case, Limits(shards=3, deadline_s=1.0), (), {})
        for call, answers in calls.items():
            for t, answer in enumerate(answers):
                ending = answer if isinstance(answer, Ending) else Ending.COMPLETE
                code = None if isinstance(answer, Ending) else answer
                history.add(Attempt(call, PATH, float(t), t + 0.5, ending, code))
            outcome = Outcome.RETURNED if answers[-1] == 200 else Outcome.RAISED
            history.add(Call(call, PATH, call, 0.0, 9.0, outcome))
        recording.end(status)
    write_verdicts(Result(case, {"recovers": Verdict(status, "w")}, folder, 1.0))
    return load_run(folder)


def counts(tmp_path: Path, a: dict[str, list[int | Ending]], b: dict[str, list[int | Ending]]) -> dict[str, int]:
    found = compare(run(tmp_path / "a", a), run(tmp_path / "b", b)).counts()
    return {str(kind): count for kind, count in found.items() if count}


@pytest.mark.parametrize(
    ("a", "b", "agreement"),
    [
        ([200], [200], Agreement.SAME),
        ([Ending.REFUSED, Ending.REFUSED, 200], [Ending.REFUSED, 200], Agreement.SAME),
        ([500, 200], [200], Agreement.DETOUR),
        ([200], [409], Agreement.DIFFERS),
        ([500], [409], Agreement.DIFFERS),
    ],
)
def test_a_request_is_compared_by_its_outcome_and_by_the_answers_on_the_way(tmp_path: Path, a, b, agreement):
    assert counts(tmp_path, {"fault-0.t0": a}, {"fault-0.t0": b}) == {agreement: 1}


def test_a_request_that_one_run_never_made_is_said_and_recovery_is_left_out(tmp_path: Path):
    one = {"fault-0.t0": [200], "recovery0-0.t0": [200]}

    assert counts(tmp_path, one, {"recovery0-0.t0": [409]}) == {Agreement.ONLY_ONE: 1}


def gym_chaos(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        [GYM_CHAOS, *argv], cwd=cwd, capture_output=True, text=True, timeout=100, check=False, env=env
    )


def test_diff_exits_1_where_verdicts_differ_and_shows_what(tmp_path: Path):
    run(tmp_path / "a", {"fault-0.t0": [200]})
    run(tmp_path / "b", {"fault-0.t0": [409]}, Status.FAIL)

    shown = gym_chaos("diff", "a", "b", cwd=tmp_path)

    assert shown.returncode == 1
    assert "kill_group-one: requests: 1 differs; verdicts: 0 of 1 the same" in shown.stdout
    assert "recovers: pass | fail" in shown.stdout
    assert f"fault-0.t0 {PATH}: differs: returned after 200 | raised after 409" in shown.stdout
    assert gym_chaos("diff", "a", "a", cwd=tmp_path).returncode == 0
    assert gym_chaos("diff", "a", "nowhere", cwd=tmp_path).returncode == 2


def test_diff_says_why_a_difference_may_say_nothing(tmp_path: Path):
    run(tmp_path / "a", {"x": [200]})
    run(tmp_path / "b", {"x": [200]}, case=cases(find(["status_500"])[0])[0])
    with (tmp_path / "b" / HISTORY).open("a") as history:
        history.write('{"record": "att')

    said = subprocess.run([GYM_CHAOS, "diff", "a", "b"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "b: left out, being no records: history.jsonl:" in said.stdout
    assert "a and b are not of the same scenario" in said.stdout


def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path):
    shown = gym_chaos("replay", ".", cwd=tmp_path)

    assert (shown.returncode, shown.stdout) == (2, "")
    assert "no run.json in it, nor in the folders in it" in shown.stderr


def test_a_fault_that_is_tied_to_a_request_strikes_the_same_one_again(tmp_path: Path):
    (tmp_path / "tied.chaos.toml").write_text(TIED)
    first = gym_chaos("run", "tied.chaos.toml", "--client", "gym-like", "--out", "a", cwd=tmp_path)
    assert first.returncode == 0, first.stdout

    again = gym_chaos("replay", "a", "--times", "2", "--out", "b", cwd=tmp_path)

    assert again.returncode == 0, again.stdout
    checks = len(CHECKERS)
    assert again.stdout.count(f"requests: 22 same; verdicts: {checks} of {checks} the same") == 2, again.stdout
    history = load_run(tmp_path / "b" / "tied-one").history
    assert history is not None
    before = [
        served
        for served in history.served
        if served.shard == 1 and served.call.startswith("fault-") and served.started < history.faults[0].began
    ]
    assert [served.path for served in before].count(PATH) == 2, "killed with its second generation under way"
