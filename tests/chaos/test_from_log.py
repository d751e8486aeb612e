"""From logs of real programs to a scenario that fails the same check again. What the logs are of: data/README.md."""

import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gymproof.chaos.checkers.base import Status
from gymproof.chaos.choices import Setup
from gymproof.chaos.cli import app
from gymproof.chaos.incident import Incident, NothingFoundError, infer
from gymproof.chaos.logs import FORMATS, read_log
from gymproof.chaos.portal import Portal
from gymproof.chaos.runner import run_case
from gymproof.chaos.scenario import cases, load
from gymproof.chaos.stage import Session

DATA = Path(__file__).parent / "data"
BAD_ROUTER = Path(__file__).parent / "bad_routers" / "no_shard_503.py"


def told(*names: str) -> Incident:
    return infer([read_log((DATA / name).read_text(), name) for name in names], "t")


def faults(incident: Incident) -> list[tuple[str, object, object]]:
    return [(plan.kind, plan.fault.model_dump(), plan.shards) for plan in incident.scenario.fault]


def test_each_log_is_read_as_what_it_is_and_no_line_of_it_is_unreadable():
    found = {path.name: read_log(path.read_text(), path.name) for path in DATA.iterdir() if path.suffix != ".md"}

    assert {reading.format for reading in found.values()} == set(FORMATS)
    assert [reading.unreadable for reading in found.values() if reading.unreadable] == []


def test_a_servers_own_log_outranks_what_its_clients_saw():
    incident = told("gym_console.log", "vllm_killed_0.log", "vllm_killed_1.log")

    assert incident.scenario.fleet.shards == 2
    assert faults(incident) == [("kill", {"process": "engine"}, None)]
    assert "vllm_killed_0.log:13: 127.0.0.1:24290: its engine died -> kill process=engine" in incident.inferred
    assert any("answered 503 (rate_limit), try 42" in line for line in incident.inferred)


def test_a_shutdown_that_was_asked_for_is_no_death():
    assert faults(told("vllm_terminated.log")) == [("terminate", {}, None)]


def test_requests_that_run_while_no_token_comes_are_a_frozen_engine():
    incident = told("prometheus_range.json")

    assert any("2 requests ran and no token came for 9 s" in line for line in _signs("prometheus_range.json"))
    assert any("more signs on the same shards" in line for line in incident.unknown)


def test_one_moment_of_metrics_tells_no_stall():
    reading = read_log((DATA / "prometheus_text.txt").read_text(), "m")

    assert reading.gaps == ["one moment does not show whether tokens came: export a range"]


def test_the_routers_events_give_the_fleet_its_limits_and_the_shard_that_was_hit():
    incident = told("router_events.jsonl")

    assert (incident.scenario.fleet.shards, incident.scenario.limits.deadline_s) == (3, 1.5)
    assert [(kind, len(shards)) for kind, _, shards in faults(incident)] == [("kill", 1)]


def test_with_the_console_alone_every_shard_is_made_to_answer_as_the_clients_saw_and_that_is_said():
    incident = told("gym_console.log")

    assert faults(incident)[0][0] == "status"
    assert any(line.startswith("what happened to the shards") for line in incident.unknown)


def test_what_cannot_be_read_is_counted_and_shown(tmp_path: Path):
    broken = tmp_path / "console.log"
    broken.write_text((DATA / "gym_console.log").read_text() + "[model_retry url=http://x status=5\n")
    strange = tmp_path / "notes.txt"
    strange.write_text("the run hung\n")

    shown = CliRunner().invoke(app, ["from-log", str(broken), str(strange), "-o", str(tmp_path / "i.chaos.toml")])

    assert shown.exit_code == 0
    assert "unreadable: console.log:44: [model_retry url=http://x status=5" in shown.output
    assert "unreadable: notes.txt:1: the run hung" in shown.output
    assert load(tmp_path / "i.chaos.toml").fault


def test_a_log_in_no_known_format_alone_is_told_which_formats_there_are(tmp_path: Path):
    strange = tmp_path / "notes.txt"
    strange.write_text("the run hung\n")

    shown = CliRunner().invoke(app, ["from-log", str(strange), "-o", str(tmp_path / "i.chaos.toml")])

    assert shown.exit_code == 2
    assert "unknown: notes.txt: its format is none of: gym-router events, Prometheus range," in shown.output


def test_an_event_log_that_begins_in_the_middle_of_a_line_is_one_still():
    reading = read_log('pse":0.1}\n{"mono":1.0,"t":2.0,"event":"stop"}\n', "events.jsonl")

    assert (reading.format, reading.unreadable, reading.ignored) == (
        "gym-router events",
        ['events.jsonl:1: pse":0.1}'],
        1,
    )


def test_logs_of_a_quiet_night_are_no_incident():
    with pytest.raises(NothingFoundError, match="no log says that anything went wrong"):
        infer([], "t")


@pytest.mark.slow
def test_the_logs_of_a_run_reproduce_its_failing_check(tmp_path: Path):
    """They are of a bad router before two real vLLM servers whose engines were killed: it answered 503 without end."""
    logs = [str(DATA / name) for name in ("gym_console.log", "vllm_killed_0.log", "vllm_killed_1.log")]
    file = tmp_path / "incident.chaos.toml"
    assert CliRunner().invoke(app, ["from-log", *logs, "-o", str(file)]).exit_code == 0
    command = shlex.join([sys.executable, str(BAD_ROUTER)])
    command += " --port {port} --backends-file {backends_file} --deadline-s {deadline_s}"
    setup = Setup(out=tmp_path, client="gym-like", router_cmd=command)

    with Portal() as portal, portal.inside(Session(setup)) as session:
        verdicts = portal.call(run_case(session, cases(file)[0])).verdicts

    assert verdicts["no_unbounded_retry"].status is Status.FAIL
    assert verdicts["gym_safe_statuses"].status is Status.FAIL


def _signs(name: str) -> list[str]:
    return [sign.says for sign in read_log((DATA / name).read_text(), name).signs]
