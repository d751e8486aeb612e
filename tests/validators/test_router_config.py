"""Configurations of gymproof's own router, as TOML, YAML and mappings."""

import pytest

from gymproof.validators import CannotTellError, UnsafeForGymError, Verdict, load_contract, validate_config
from gymproof.validators.router_config import check_router


@pytest.fixture
def toml(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "router.toml"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("prefix", ["", "[router]\n"])
def test_a_good_file_is_safe_with_and_without_a_table(toml, prefix):
    findings = validate_config(toml(f'{prefix}backends = ["http://a:8000/v1"]\nno_healthy_backend_status = 409\n'))

    assert [finding.verdict for finding in findings] == [Verdict.SAFE]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("no_healthy_backend_status = 503", "without bound"),
        ("backend_failure_status = 502", "without bound"),
        ("backend_failure_status = 409", "not retried"),
        ("some_other_status = 429", "without bound"),
        ('no_healthy_backend_status = "409"', "not a status"),
        ("connect_timeout_s = 700", "longer than backend_timeout_s"),
        ("backend_timeout_s = 0", "not a positive"),
        ("backend_timeout_s = inf", "no deadline"),
        ("rollout_timeout_s = 60", "longer than rollout_timeout_s"),
        ("port = 70000", r"outside 0\.\.65535"),
        ("admin_port = -1", r"outside 0\.\.65535"),
    ],
)
def test_one_wrong_value_is_refused_with_file_key_and_value(toml, line, words):
    with pytest.raises(UnsafeForGymError, match=words) as refused:
        validate_config(toml(f"[router]\n{line}\n"))

    assert "router.toml: " in str(refused.value)
    key = "backend_timeout_s" if line.startswith("rollout") else line.partition(" ")[0]
    assert f"{key} = " in str(refused.value)


def test_a_router_that_closes_idle_connections_before_the_client_is_a_caution(toml):
    findings = validate_config(toml("client_idle_s = 5\n"))

    assert [(f.key, f.verdict) for f in findings] == [("client_idle_s", Verdict.CAUTION)]


def test_yaml_is_read_too_and_takes_overrides(tmp_path):
    path = tmp_path / "router.yaml"
    path.write_text("policy: round_robin\nno_healthy_backend_status: 409\nport: 0\n")
    assert validate_config(path)
    with pytest.raises(UnsafeForGymError, match="504"):
        validate_config(path, overrides=["no_healthy_backend_status=504"])


def test_an_empty_router_table_has_nothing_wrong_with_it():
    assert [f.verdict for f in validate_config({"router": {"policy": "round_robin"}})] == [Verdict.SAFE]


@pytest.mark.parametrize("config", [{}, {"colour": "red"}, {"router": 3}])
def test_something_else_is_not_judged(config):
    with pytest.raises(CannotTellError, match="neither a configuration of NeMo-RL or prime-rl nor one of gym-router"):
        validate_config(config)


def test_toml_that_is_none_is_named(toml):
    with pytest.raises(CannotTellError, match=r"router\.toml: .*cannot be read"):
        validate_config(toml("port = = 1"))


def test_a_toml_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CannotTellError, match="No such file"):
        validate_config(tmp_path / "gone.toml")


def test_the_client_that_a_file_names_decides_what_is_right():
    table = {"client": "openai", "no_healthy_backend_status": 409, "backend_timeout_s": 600}
    unsafe = {f.key: f.right for f in check_router(table, "r.toml", load_contract()) if f.verdict is Verdict.UNSAFE}

    assert unsafe == {
        "no_healthy_backend_status": "424 for one that no try can.",
        "backend_timeout_s": "less than 600.",
    }


def test_a_file_that_names_only_its_client_is_safe():
    assert check_router({"client": "openai"}, "r.toml", load_contract()) == []


def test_an_unknown_client_is_unsafe_and_the_known_ones_are_named():
    (finding,) = check_router({"client": "curl"}, "r.toml", load_contract())

    assert "shipped: nemo-gym, openai, verifiers" in finding.problem
