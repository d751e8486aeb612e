"""The `gym-chaos` command, as its user sees it."""

import os
import shlex
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import psutil
import pytest

from gymproof.chaos.checkers import CHECKERS
from gymproof.chaos.faults import FAULTS
from gymproof.chaos.history import History
from gymproof.chaos.scenario import shipped

GYM_CHAOS = str(Path(sys.executable).with_name("gym-chaos"))
WITHIN_S = 90


def gym_chaos(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [GYM_CHAOS, *argv],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )


def test_list_names_every_shipped_scenario(tmp_path: Path):
    shown = gym_chaos("list", cwd=tmp_path)

    assert shown.returncode == 0
    assert [path.name for path in shipped() if path.name.split(".")[0] not in shown.stdout] == []


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["run", "kill_engin"], "kill_engin: no such file, and no shipped scenario; shipped: abort"),
        (["run", "kill_engine", "--client", "curl"], "unknown client 'curl'; known: auto, nemo-gym, gym-like"),
        (["run", "kill_engine", "--fleet", "moon"], "unknown fleet 'moon'; known: sim"),
        (["run", "kill_engine", "--router-cmd", ""], "router command '' is empty; it needs a program"),
        (["run", "kill_engine", "--router-cmd", "no-such"], "no program 'no-such' on PATH"),
        (["run", "kill_engine", "--router-cmd", "sleep 9"], "router command 'sleep 9' has no {port}"),
        (["run", "kill_engine", "--router-cmd", "echo {ports}"], "bad placeholder 'ports'; known: {port}"),
        (["run", "kill_engine", "--router-cmd", "echo '"], 'router command "echo \'": No closing quotation'),
        (["run", "kill_engine", "--out", "/proc/x"], "/proc/x"),
        (["run", "kill_engine", "--junit", "."], "Is a directory"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(tmp_path: Path, argv: list[str], complaint: str):
    shown = gym_chaos(*argv, cwd=tmp_path)

    assert (shown.returncode, shown.stdout) == (2, "")
    assert complaint in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


def test_a_toxiproxy_that_was_named_has_to_be_there(tmp_path: Path):
    shown = gym_chaos("run", "kill_engine", "--toxiproxy-url", "http://127.0.0.1:1", cwd=tmp_path)

    assert shown.returncode == 2
    assert "No Toxiproxy server answers at http://127.0.0.1:1" in shown.stderr


def test_records_of_an_earlier_run_stay(tmp_path: Path):
    (tmp_path / "records" / "router_kill").mkdir(parents=True)

    assert gym_chaos("run", "router_kill", "--client", "gym-like", "--out", "records", cwd=tmp_path).returncode == 0
    assert (tmp_path / "records" / "router_kill-2" / "history.jsonl").exists()


def test_a_run_leaves_a_history_verdicts_and_junit(tmp_path: Path):
    shown = gym_chaos(
        "run",
        "kill_group",
        "--client",
        "gym-like",
        "--out",
        "records",
        "--junit",
        "junit.xml",
        "--seed",
        "7",
        cwd=tmp_path,
    )

    assert shown.returncode == 0, shown.stdout
    assert "2 of 2 cases passed" in shown.stdout
    history = History.read(tmp_path / "records" / "kill_group-one" / "history.jsonl")
    assert (history.limits.seed, history.limits.client, history.faults[0].shards) == (7, "gym-like", (1,))
    assert (tmp_path / "records" / "kill_group-all" / "verdicts.json").exists()
    assert ET.parse(tmp_path / "junit.xml").getroot().get("tests") == "2"


def test_a_router_that_cannot_start_is_unknown_and_exit_2(tmp_path: Path):
    shown = gym_chaos("run", "kill_group", "--client", "gym-like", "--router-cmd", "false {port}", cwd=tmp_path)

    assert shown.returncode == 2
    assert "the router under test ended with 1: false" in " ".join(shown.stdout.split())


def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, interruptible):
    """Ctrl-C in the middle of a fault: no process that the run started survives it."""
    marker = f"gymproof-{os.getpid()}"
    argv = shlex.join(["run", "stop_engine", "stall", "--client", "gym-like", "--out", marker])
    with interruptible([GYM_CHAOS, *shlex.split(argv)], cwd=tmp_path) as run:
        for line in run.stdout:  # ends with the first verdict: the second case is then under way
            if "stop_engine-one" in line:
                break
        children = psutil.Process(run.pid).children(recursive=True)
        assert len(children) >= len(["guard", "shard", "shard", "shard"])
        run.send_signal(signal.SIGINT)
        rest, _ = run.communicate(timeout=WITHIN_S)

    assert run.returncode == 130, rest
    assert psutil.wait_procs(children, timeout=5)[1] == []
    assert "stop_engine-one" in rest, "what was judged before is shown"


def test_the_readme_names_every_check_and_every_fault(request: pytest.FixtureRequest):
    readme = (request.config.rootpath / "README.md").read_text()

    assert [name for name in (*CHECKERS, *FAULTS) if f"`{name}`" not in readme] == []
