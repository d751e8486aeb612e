import xml.etree.ElementTree as ET
from pathlib import Path

from rich.console import Console

from gymproof.chaos.checkers.base import Status, Verdict
from gymproof.chaos.history import Attempt, Ending, History, Limits, Rollout
from gymproof.chaos.runner import Result
from gymproof.chaos.scenario import cases, find
from gymproof.chaos.summary import as_json, exit_code, reasons, table, write_junit

CASE = cases(find(["kill_engine"])[0])[0]


def result(status: Status = Status.PASS, why: str = "w") -> Result:
    history = History(Limits(shards=3, deadline_s=1.0))
    for code in (200, 200, 500):
        history.add(Attempt("r", "/v1/chat/completions", 0.0, 1.0, Ending.COMPLETE, code))
    history.add(Attempt("r", "/v1/chat/completions", 0.0, None, Ending.PENDING))
    history.add(Rollout("r", "fault", 0.0, 1.0, 1, 1))
    history.add(Rollout("s", "fault", 0.0, 1.0, 1, 0, "409"))
    return Result(CASE, {"recovers": Verdict(status, why)}, Path("out"), 1.25, history)


def broken() -> Result:
    return Result(CASE, {"setup": Verdict(Status.UNKNOWN, "no Toxiproxy")}, Path("out"), 0.1)


def test_one_failure_outweighs_what_could_not_be_told_and_that_outweighs_a_pass():
    assert exit_code([result()]) == 0
    assert exit_code([result(), broken()]) == 2
    assert exit_code([result(), broken(), result(Status.FAIL)]) == 1


def test_the_table_shows_what_clients_saw_and_what_is_wrong():
    console = Console(width=160, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    with console.file:
        console.print(table([result(Status.FAIL, "shard 1 never served again"), broken()]))

    text = console.export_text()
    assert "200x2 500x1 pendingx1" in text
    assert "1/2" in text
    assert "recovers" in text
    assert reasons([result(), result(Status.FAIL, "shard 1 never served again"), broken()]) == [
        "kill_engine-one: recovers: fail: shard 1 never served again",
        "kill_engine-one: setup: unknown: no Toxiproxy",
    ]


def test_json_has_each_verdict_with_its_reason():
    assert as_json(result(Status.FAIL, "why"))["verdicts"] == {
        "recovers": {"status": "fail", "why": "why", "evidence": []}
    }


def test_junit_tells_failures_from_errors(tmp_path: Path):
    write_junit([result(), result(Status.FAIL, "a < b"), broken()], tmp_path / "new" / "junit.xml")

    suite = ET.parse(tmp_path / "new" / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert [child.tag for case in suite for child in case] == ["failure", "error"]
    assert suite[1][0].text == "recovers: fail: a < b"
