"""Whole conformance runs, of a right router and of deliberately broken ones, on a few checks each."""

import asyncio
import errno
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gymproof.chaos.checkers.testing import attempt, fault, history
from gymproof.chaos.conform.command import exit_code
from gymproof.chaos.conform.faults import LEFT_OUT, fault_cases
from gymproof.chaos.conform.findings import Finding, Group, Scorecard, Word
from gymproof.chaos.conform.run import ConformError, Judgement, Subject, choose, judge_router
from gymproof.chaos.recording import load_runs
from gymproof.chaos.runner import Result
from gymproof.chaos.scenario import SUFFIX, ScenarioError, Scope, shipped
from gymproof.chaos.waiting import wait_until

ROUTERS = Path(__file__).parent / "bad_routers"
GYM_CHAOS = str(Path(sys.executable).with_name("gym-chaos"))
WITHIN_S = 120
slow = pytest.mark.slow


def command(router: str) -> str:
    """How a router of the folder is started."""
    start = shlex.join([sys.executable, str(ROUTERS / f"{router}.py")])
    return (
        f"{start} --port {{port}} --backends-file {{backends_file}} --deadline-s {{deadline_s}} --prefill={{prefill}}"
    )


def judge(router: str, out: Path, *only: str) -> Scorecard:
    """Judge it by these checks."""
    return asyncio.run(judge_router(Judgement(Subject(router, command(router)), "nemo-gym", choose(only)), out))


def gym_chaos(cwd: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [GYM_CHAOS, "conform", *argv],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )


def test_each_scenario_is_judged_or_left_out_for_a_reason():
    judged = {case.check for case in fault_cases()}
    left_out = {path.name.removesuffix(SUFFIX) for path in shipped()} - judged

    assert {name for name in left_out if not name.startswith(tuple(LEFT_OUT))} == set()
    assert [prefix for prefix in LEFT_OUT if not any(name.startswith(prefix) for name in left_out)] == []


def test_a_head_that_a_client_takes_is_no_fault_to_it():
    left_out = {case.check for case in fault_cases()} - {case.check for case in fault_cases("openai")}

    assert left_out == {"big_header", "many_headers", "double_length"}


def test_a_shard_is_struck_that_an_idle_router_would_take_first():
    one = next(case for case in fault_cases() if case.group is Group.ONE)

    assert [one.case.targets(plan) for plan in one.case.scenario.fault] == [(0,)]
    assert one.case.scope is Scope.ONE


@pytest.mark.parametrize(
    ("only", "cases", "groups"),
    [
        (["kill_group"], ["kill_group-one", "kill_group-all"], []),
        (["hang_ups", "cancellation"], ["hang_ups"], [Group.CANCELLATION]),
        (["header_sticks"], [], [Group.AFFINITY]),
    ],
)
def test_a_word_chooses_checks_or_groups(only, cases, groups):
    chosen = choose(only)

    assert ([case.case.name for case in chosen.cases], chosen.groups) == (cases, groups)


def test_recovery_is_seen_in_every_case():
    assert len(choose(["recovery"]).cases) == len(choose().cases)


def test_a_word_that_names_nothing_is_refused_with_the_known_ones():
    with pytest.raises(ScenarioError, match="--only kil_group: no such check or group; known: abort, accept_close"):
        choose(["kil_group"])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([Word.SAFE, Word.BOUNDED, Word.NOT_APPLICABLE], 0),
        ([Word.SAFE, Word.UNSAFE, Word.UNKNOWN], 1),
        ([Word.SAFE, Word.UNKNOWN], 2),
        ([], 2),
    ],
)
def test_the_exit_code_says_the_worst(words, code):
    assert exit_code([Finding(group=Group.ONE, check=word, word=word, seen="") for word in words]) == code


@slow
def test_a_right_router_is_safe(tmp_path):
    card = judge("base", tmp_path, "kill_group", "status_307", "keepalive_race", "bad_requests")

    assert {finding.word for finding in card.findings} == {Word.SAFE}
    assert len(card.findings) == 3 * 3 + 1
    assert card.versions.keys() >= {"gymproof", "python"}
    assert all((tmp_path / finding.records / "report.html").exists() for finding in card.findings)


@slow
@pytest.mark.parametrize(
    ("router", "check", "group", "word"),
    [
        ("answers_400", "kill_group", Group.ALL, Word.UNSAFE),
        ("never_readmits", "kill_group", Group.RECOVERY, Word.UNSAFE),
        ("no_shard_503", "kill_group", Group.ALL, Word.UNSAFE),
        ("relays_503", "status_503", Group.ONE, Word.UNSAFE),
        ("relays_aborts", "abort", Group.ONE, Word.UNSAFE),
        ("relays_redirects", "status_307", Group.ONE, Word.UNSAFE),
        ("timeout_504", "stop_engine", Group.ALL, Word.UNSAFE),
        ("truncates", "cut_body_chunked_fin", Group.ONE, Word.UNSAFE),
    ],
)
def test_a_bad_router_is_unsafe_where_it_is_bad(router, check, group, word, tmp_path):
    found = {finding.key: finding for finding in judge(router, tmp_path, check).findings}

    assert found[group, check].word is word, found[group, check]
    assert found[group, check].right
    assert found[group, check].evidence


@slow
def test_a_router_that_serves_nobody_is_not_judged(tmp_path):
    serves_nobody = shlex.join([sys.executable, "-m", "http.server", "--bind", "127.0.0.1"]) + " {port}"
    judgement = Judgement(Subject("nobody", serves_nobody, start_within_s=1.0), "nemo-gym", choose(["kill_group"]))

    with pytest.raises(ConformError, match="rollouts fail with no fault at all: turn 0: GaveUpError: 501"):
        asyncio.run(judge_router(judgement, tmp_path))


def test_records_that_cannot_be_written_end_the_run_with_the_reason_alone(tmp_path, monkeypatch):
    async def serves(_session, case):
        met = history(fault(0), attempt("fault-0.t0", status=200))
        return Result(case, {}, tmp_path, 0.0, met)

    def fails(_result):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("gymproof.chaos.conform.run.run_case", serves)
    monkeypatch.setattr("gymproof.chaos.conform.run.write_verdicts", fails)

    with pytest.raises(OSError, match="No space left on device"):
        judge("base", tmp_path, "kill_group")


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        ([], "which router? Name one by --router, or start it by --router-cmd"),
        (["--router", "envoy"], "router 'envoy': no such preset; known: gymproof"),
        (["--router", "gymproof", "--router", "gymproof"], "2 routers are called 'gymproof': give each once"),
        (["--router-cmd", "no-such"], "no program 'no-such' on PATH"),
        (["--router-cmd", "sleep {port}", "--name", "../mine"], "--name '../mine' cannot be that of a folder"),
        (["--router", "gymproof", "--name", "mine"], "--name mine: it is for a --router-cmd, and there is none"),
        (["--router", "gymproof", "--client", "curl"], "--client curl: no contract to judge by; known: nemo-gym"),
        (["--router", "gymproof", "--only", "moon"], "--only moon: no such check or group; known:"),
        (["--router", "gymproof", "--only", "kill_group", "--out", "/proc/x"], "/proc/x"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(tmp_path, argv, complaint):
    shown = gym_chaos(tmp_path, *argv)

    assert (shown.returncode, shown.stdout) == (2, "")
    assert complaint in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


@slow
def test_an_unsafe_router_ends_the_command_with_1_and_its_author_is_told_what_to_do(tmp_path):
    argv = ("--router-cmd", command("no_shard_503"), "--name", "mine", "--only", "kill_group", "--out", "records")
    shown = gym_chaos(tmp_path, *argv)

    assert shown.returncode == 1, shown.stderr
    assert "Never answer any of 429, 502, 503, 504, 520" in shown.stdout
    card = Scorecard.read(tmp_path / "records" / "mine" / "scorecard.json")
    assert card.complete
    assert card.words()[Group.ALL, "kill_group"] is Word.UNSAFE
    assert (tmp_path / "records" / "mine" / "report.html").exists()
    assert [run.complete for run in load_runs(tmp_path / "records" / "mine")] == [True] * 3


@slow
def test_a_router_that_does_not_start_keeps_no_other_from_being_judged(tmp_path, monkeypatch):
    starts_not = tmp_path / "haproxy"
    starts_not.write_text("#!/bin/sh\necho no licence\nexit 7\n")
    starts_not.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    argv = ("--router", "haproxy", "--router", "gymproof", "--only", "models", "--out", "records")
    shown = gym_chaos(tmp_path, *argv)

    assert shown.returncode == 2
    assert "the router under test ended with 7" in shown.stderr
    assert Scorecard.read(tmp_path / "records" / "gymproof" / "scorecard.json").complete


@slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_what_it_found_and_no_process(tmp_path, signum, interruptible):
    argv = ("--router-cmd", command("base"), "--only", "kill_group", "--only", "stop_engine", "--out", "records")
    conform = [GYM_CHAOS, "conform", "--jobs", "1", *argv]
    with interruptible(conform, cwd=tmp_path, stderr=subprocess.STDOUT) as run:
        second = tmp_path / "records" / "router" / "stop_engine-all" / "history.jsonl"
        assert asyncio.run(wait_until(second.exists, WITHIN_S)), "the first case does not come to its end"
        children = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signum)
        said, _ = run.communicate(timeout=WITHIN_S)

    assert run.returncode == 130, said
    assert psutil.wait_procs(children, timeout=5)[1] == []
    card = Scorecard.read(tmp_path / "records" / "router" / "scorecard.json")
    assert not card.complete
    assert card.words()[Group.ONE, "stop_engine"] is Word.SAFE
    assert "INCOMPLETE" in said
