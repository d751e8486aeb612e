"""A run's folder is readable whatever became of the run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from gymproof.chaos.checkers.base import Status, Verdict
from gymproof.chaos.choices import Setup
from gymproof.chaos.history import Attempt, Call, Delivery, Ending, FaultWindow, History, Limits, Outcome, Served
from gymproof.chaos.recording import Recording, RecordingError, load_run, load_runs
from gymproof.chaos.report import render
from gymproof.chaos.runner import Result
from gymproof.chaos.scenario import Case, cases, find, load, shipped
from gymproof.chaos.scenario_toml import dump
from gymproof.chaos.summary import write_verdicts

CASE = cases(find(["kill_group"])[0])[1]
LIMITS = Limits(shards=3, deadline_s=1.5)
STRUCK = FaultWindow("kill", "process", (0, 1, 2), 5.0, None, acted=False)
RECORDS = [
    Attempt("r0.t0", "/v1/chat/completions", 1.0, 2.0, Ending.COMPLETE, 200),
    Call("r0.t0", "/v1/chat/completions", "r0", 1.0, 2.0, Outcome.RETURNED),
    STRUCK,
]
WITHIN_S = 60
GYM_CHAOS = str(Path(sys.executable).with_name("gym-chaos"))


@contextmanager
def recorded(folder: Path, case: Case = CASE, logs: tuple[Path, ...] = ()) -> Iterator[tuple[Recording, History]]:
    """A recording under way, with some records in it."""
    folder.mkdir()
    with Recording(folder, case, Setup(out=folder, seed=7)) as recording:
        history = recording.begin(case, LIMITS, logs, {"vllm": "0.32.0"})
        for record in RECORDS:
            history.add(record)
        yield recording, history


def cut_off(folder: Path, case: Case = CASE, logs: tuple[Path, ...] = ()) -> Path:
    """The same of a run that never came to its end."""
    with recorded(folder, case, logs):
        return folder


def test_a_whole_run_comes_back_with_all_that_was_known_of_it(tmp_path: Path):
    folder = tmp_path / "kill"
    with recorded(folder) as (recording, _):
        recording.end(Status.FAIL)
    write_verdicts(Result(CASE, {"recovers": Verdict(Status.FAIL, "never", ("a",))}, folder, 1.0))
    (folder / "router-events.jsonl").write_text('{"event": "attempt"}\n')

    run = load_run(folder)

    assert (run.complete, run.about.status, run.about.setup["seed"]) == (True, Status.FAIL, 7)
    assert run.about.versions["vllm"] == "0.32.0"
    assert run.about.versions["python"].startswith("3.")
    assert run.history is not None
    assert (run.history.attempts, run.history.calls, run.history.faults) == ([RECORDS[0]], [RECORDS[1]], [STRUCK])
    assert run.verdicts == {"recovers": Verdict(Status.FAIL, "never", ("a",))}
    assert run.events == ({"event": "attempt"},)
    assert run.unreadable == ()


def test_a_run_that_was_cut_off_is_incomplete_and_what_it_had_is_read(tmp_path: Path):
    folder = tmp_path / "kill"
    cut_off(folder)
    with (folder / "history.jsonl").open("ab") as file:
        file.write(b'{"record":"attempt","call":"r0')
    (folder / "router-events.jsonl").write_text('{"event": "attempt"}\n{"eve')

    run = load_run(folder)

    assert (run.complete, run.about.status, run.about.ended, run.verdicts) == (False, None, None, {})
    assert run.history is not None
    assert run.history.faults == [STRUCK]
    assert run.events == ({"event": "attempt"},)
    assert run.unreadable == ('history.jsonl:5: {"record":"attempt","call":"r0', 'router-events.jsonl:2: {"eve')


def test_a_run_that_was_cut_off_has_its_deliveries_from_the_shards_own_logs(tmp_path: Path):
    log = tmp_path / "shard-0.jsonl"
    cut_off(tmp_path / "kill", logs=(log,))
    now = time.monotonic()
    request = {"event": "request", "id": "1", "call": "r0.t0", "path": "/v1/chat/completions", "sha256": "a"}
    log.write_bytes(b"".join(orjson.dumps({**request, "t": t, "id": str(t)}) + b"\n" for t in (1.0, now)))

    history = load_run(tmp_path / "kill").history

    assert history is not None
    assert history.served == [
        Served(0, "r0.t0", "/v1/chat/completions", now, None, Delivery.RUNNING, request_sha256="a")
    ]


@pytest.mark.parametrize(
    ("file", "text", "shown"),
    [
        ("verdicts.json", '{"verdicts": {"reco', "verdicts.json: JSONDecodeError: "),
        ("verdicts.json", "{}", "verdicts.json: KeyError: 'verdicts'"),
        ("verdicts.json", '{"verdicts": {"recovers": 1}}', "verdicts.json: TypeError: "),
        ("router-events.jsonl", "7", "router-events.jsonl:1: 7"),
        ("history.jsonl", "7", "history.jsonl: "),
    ],
)
def test_a_file_that_was_garbled_is_shown_and_the_others_are_read(tmp_path: Path, file: str, text: str, shown: str):
    folder = cut_off(tmp_path / "kill")
    (folder / file).write_text(text)

    run = load_run(folder)

    assert [line.startswith(shown) for line in run.unreadable] == [True], run.unreadable
    assert (run.events, run.verdicts, run.history is None) == ((), {}, file == "history.jsonl")
    assert "kill_group-all" in render(run, "html")


def test_a_run_that_ended_before_anything_was_recorded_has_no_history(tmp_path: Path):
    (tmp_path / "kill").mkdir()
    with Recording(tmp_path / "kill", CASE, Setup(out=tmp_path)):
        pass

    run = load_run(tmp_path / "kill")

    assert (run.history, run.complete, run.case.name) == (None, False, "kill_group-all")


def test_a_healed_fault_takes_the_place_of_the_same_one_when_it_struck(tmp_path: Path):
    healed = FaultWindow("kill", "process", (0, 1, 2), 5.0, 6.0, acted=True)
    with recorded(tmp_path / "kill") as (_, history):
        history.add(healed)

    read = load_run(tmp_path / "kill").history

    assert read is not None
    assert read.faults == history.faults == [healed]


def test_the_recorded_scenario_is_the_case_as_it_was_run_and_is_not_fitted_twice(tmp_path: Path):
    slow = CASE.fitted(CASE.scenario.fleet.model_copy(update={"shards": 2}), pace=2.0)
    cut_off(tmp_path / "kill", case=slow)

    case = load_run(tmp_path / "kill").case

    assert (case.name, case.pace, case.targets(case.scenario.fault[0])) == ("kill_group-all", 2.0, (0, 1))
    assert case.scenario.limits.deadline_s == 2 * CASE.scenario.limits.deadline_s
    assert case.fitted(case.scenario.fleet, pace=2.0).scenario == case.scenario


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.name.split(".")[0])
def test_a_scenario_comes_back_from_its_text(tmp_path: Path, path: Path, whole: bool):
    (tmp_path / "x.chaos.toml").write_text(dump(load(path), whole=whole, remarks=["why"]))

    assert load(tmp_path / "x.chaos.toml") == load(path)


def test_a_folder_that_is_no_run_is_refused_by_name(tmp_path: Path):
    with pytest.raises(RecordingError, match=r"run\.json: cannot be read: No such file"):
        load_run(tmp_path)
    with pytest.raises(RecordingError, match=r"no run\.json in it, nor in the folders in it"):
        load_runs(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RecordingError, match=r"run\.json: not about a run: Field required"):
        load_runs(tmp_path)


def test_a_record_of_another_format_is_refused(tmp_path: Path):
    cut_off(tmp_path / "kill")
    file = tmp_path / "kill" / "run.json"
    file.write_bytes(orjson.dumps({**orjson.loads(file.read_bytes()), "format": 99}))

    with pytest.raises(RecordingError, match="format 99; this version reads 1"):
        load_run(tmp_path / "kill")


def test_a_harness_that_is_killed_in_the_middle_of_a_fault_leaves_a_readable_run(tmp_path: Path):
    argv = [GYM_CHAOS, "run", "stop_engine", "--client", "gym-like", "--out", "runs"]
    run = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True)
    history = tmp_path / "runs" / "stop_engine-one" / "history.jsonl"
    try:
        give_up = time.monotonic() + WITHIN_S
        while not (history.exists() and b'"record":"fault"' in history.read_bytes()):
            assert time.monotonic() < give_up, "no fault was recorded"
            time.sleep(0.01)
    finally:
        os.kill(run.pid, signal.SIGKILL)
        run.wait()

    found = load_run(history.parent)

    assert (found.complete, found.about.status, found.verdicts) == (False, None, {})
    assert found.history is not None
    assert [(window.kind, window.healed) for window in found.history.faults] == [("stop", None)]
    assert len([rollout for rollout in found.history.rollouts if rollout.completed]) >= 3, "the baseline"
    assert len(found.history.served) >= 6, "its deliveries, from the shards' logs"
