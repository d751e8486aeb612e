from pathlib import Path

import pytest

from gymproof.chaos.history import (
    Attempt,
    Call,
    Delivery,
    Ending,
    FaultWindow,
    History,
    Limits,
    Outcome,
    Recovery,
    Rollout,
    Served,
    ShardReport,
)

RECORDS = [
    Attempt("r0.t0", "/v1/chat/completions", 1.0, 2.0, Ending.COMPLETE, 200, "a", "b", 12, "timeout", "x"),
    Call("r0.t0", "/v1/chat/completions", "r0", 1.0, 2.0, Outcome.RETURNED),
    Rollout("r0", "fault", 1.0, 3.0, 2, 1, "turn 1: 409"),
    Served(1, "r0.t0", "/v1/chat/completions", 1.1, None, Delivery.RUNNING),
    FaultWindow("kill", "process", (0, 2), 1.0, 2.0, acted=True),
    ShardReport(0, same_process=True, healthy=False),
    Recovery(2.0, None, (0, 1)),
]


def full_history() -> History:
    history = History(Limits(shards=3, deadline_s=1.5))
    for record in RECORDS:
        history.add(record)
    return history


def test_a_history_comes_back_from_its_file_as_it_was(tmp_path: Path):
    full_history().write(tmp_path / "history.jsonl")

    assert History.read(tmp_path / "history.jsonl") == full_history()


def test_a_history_that_was_cut_off_is_read_up_to_the_cut(tmp_path: Path):
    path = tmp_path / "history.jsonl"
    full_history().write(path)
    path.write_bytes(path.read_bytes()[:-20])

    read = History.read(path)

    assert (read.recovery, read.shards) == (None, full_history().shards)


def test_a_file_without_limits_is_refused_by_name(tmp_path: Path):
    (tmp_path / "x.jsonl").write_bytes(b"\n")

    with pytest.raises(ValueError, match=r"x\.jsonl: no 'limits' record"):
        History.read(tmp_path / "x.jsonl")


def test_a_rollout_is_complete_only_with_every_turn():
    assert not RECORDS[2].completed
