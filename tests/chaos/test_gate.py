"""The gate as a command, and the steps of the pipelines that call it."""

import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from gymproof.chaos.gate import FIRST, ordered
from gymproof.chaos.scenario import shipped

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
BAD_ROUTERS = Path(__file__).parent / "bad_routers"
PIPELINES = {
    "github-actions.yml": lambda file: (
        file["jobs"]["gate"]["env"],
        [step["run"] for step in file["jobs"]["gate"]["steps"] if "run" in step],
    ),
    "gitlab-ci.yml": lambda file: (file["router-gate"]["variables"], file["router-gate"]["script"]),
}


def gate(*arguments, cwd):
    command = [BIN / "gym-chaos", "gate", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def cases_of(junit):
    return [case.get("name") for case in ET.parse(junit).getroot()]


def test_every_shipped_case_is_there_and_those_that_break_most_come_first():
    names = [case.name for case in ordered()]

    assert names[0] == f"{FIRST[0]}-one"
    assert len(names) == len(set(names)) >= len(shipped())


@pytest.mark.toxiproxy
def test_a_good_router_passes_with_shipped_cases_and_drawn_seeds(tmp_path):
    ran = gate("--budget", "12s", "--junit", "gate.xml", "--out", "records", cwd=tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert cases_of(tmp_path / "gate.xml")[0] == "kill_engine-one"
    assert cases_of(tmp_path / "gate.xml")[-1] == "explored"
    assert (tmp_path / "records" / "kill_engine-one" / "report.html").exists()


@pytest.mark.toxiproxy
def test_a_router_that_breaks_in_the_first_case_fails_the_gate(tmp_path):
    bad = f"{shlex.quote(sys.executable)} {shlex.quote(str(BAD_ROUTERS / 'closes_unanswered.py'))} --port {{port}}"
    bad += " --backends-file {backends_file} --deadline-s {deadline_s}"
    ran = gate("--budget", "40s", "--router-cmd", bad, "--junit", "gate.xml", cwd=tmp_path)

    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ET.parse(tmp_path / "gate.xml").getroot().get("failures") != "0"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--budget", "soon"), "budget 'soon': a number and s, m or h would be right"),
        (("--router-cmd", "no-such-router --port {port} {backends}"), "no-such-router"),
        (("--router-core", "gymproof.nowhere:build"), "gymproof.nowhere"),
        (("--junit", "."), "Is a directory"),
    ],
)
def test_bad_input_is_refused_with_its_reason(arguments, why, tmp_path):
    ran = gate("--budget", "1s", *arguments, cwd=tmp_path)

    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert why in ran.stderr
    assert ran.stdout == ""  # nothing has run


@pytest.mark.toxiproxy
@pytest.mark.parametrize("name", PIPELINES)
def test_the_steps_of_a_pipeline_run(name, tmp_path):
    """All but the installation, which is checked by its words: what is tested here is installed already."""
    settings, steps = PIPELINES[name](yaml.safe_load((ROOT / "docs" / "examples" / name).read_text()))
    install, *rest = steps
    assert re.fullmatch(r"python -m pip install 'gymproof\[chaos,gym\]'", install)

    environment = {**os.environ, **settings, "GATE_BUDGET": "6s", "PATH": f"{BIN}:{os.environ['PATH']}"}
    environment |= {
        "GITHUB_RUN_NUMBER": "7",
        "CI_PIPELINE_IID": "7",
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", ""),
    }
    for step in rest:
        ran = subprocess.run(
            ["bash", "-ec", step], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    assert cases_of(tmp_path / "gate.xml")[0] == "kill_engine-one"
