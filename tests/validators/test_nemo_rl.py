"""NeMo-RL configurations, rule by rule, on one that is safe but for one thing."""

import copy

import pytest

from gymproof.validators import CannotTellError, Finding, UnsafeForGymError, Verdict, judge_config, validate_config
from gymproof.validators.nemo_rl import DEFAULTS, RENAMED, ROUTER

SAFE = {
    "env": {"should_use_nemo_gym": True},
    "async_rl": {
        "rollout_failure": {"nemo_gym": {"rollout_timeout_s": 3600}},
        "generation_fleet_health": {"enabled": True},
        "generation_router": {
            "enabled": True,
            "port_range_low": 6000,
            "port_range_high": 6099,
            "backend_timeout_s": 600,
            "connect_timeout_s": 5,
            "no_healthy_backend_status": 409,
        },
    },
}


def judged(*overrides: str) -> list[Finding]:
    return judge_config(copy.deepcopy(SAFE), overrides=overrides)


def about(key: str, findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.key == key]


def test_a_good_configuration_has_only_good_findings():
    findings = validate_config(SAFE)

    assert findings
    assert {finding.verdict for finding in findings} == {Verdict.SAFE}


UNSAFE = [
    (f"{ROUTER}.no_healthy_backend_status=503", "without bound"),
    (f"{ROUTER}.no_healthy_backend_status=429", "without bound"),
    (f"{ROUTER}.no_healthy_backend_status=500", "repeats what was meant as final"),
    (f"{ROUTER}.no_healthy_backend_status=200", "taken for a success"),
    (f"{ROUTER}.no_healthy_backend_status=99", r"not a status in 200\.\.599"),
    (f"{ROUTER}.no_healthy_backend_status=none", "not a status"),
    (f"{ROUTER}.no_healthy_backend_status=true", "not a status"),
    (f"{ROUTER}.no_healthy_backend_status=null", "not a status"),
    (f"{ROUTER}.connect_timeout_s=601", "can never fire"),
    (f"{ROUTER}.connect_timeout_s=0", "not a positive"),
    (f"{ROUTER}.backend_timeout_s=-1", "not a positive"),
    (f"{ROUTER}.backend_timeout_s=.inf", "no deadline at all"),
    (f"{ROUTER}.backend_timeout_s=null", "not a number"),
    (f"{ROUTER}.backend_timeout_s=soon", "not a number"),
    (f"{ROUTER}.backend_timeout_s=3601", "deadline never fires"),
    ("async_rl.rollout_failure.nemo_gym.rollout_timeout_s=0", "not a positive"),
    (f"{ROUTER}.port_range_low=6099", "range is empty"),
    (f"{ROUTER}.port_range_high=70000", r"outside 1\.\.65535"),
    (f"{ROUTER}.port_range_low=0", r"outside 1\.\.65535"),
    (f"{ROUTER}.port_range_low=6000.5", "not a port"),
    ("async_rl.generation_fleet_health.enabled=false", "never told of a dead shard"),
    ("~async_rl.generation_fleet_health", "never told of a dead shard"),
    (f"{ROUTER}.enabled=false", "talks to the engines itself"),
    (f"{ROUTER}.enabled=maybe", "neither true nor false"),
    ("env.should_use_nemo_gym=false", "refuses a router without NeMo-Gym"),
    (f"++{ROUTER}.backend_timeout=60", "ignores it without a word"),
    (f"++{ROUTER}.no_healthy_backend_statuses=503", "ignores it without a word"),
    ("++async_rl.generation_routers={enabled:true}", "ignores it without a word"),
]


@pytest.mark.parametrize(("override", "words"), UNSAFE)
def test_one_wrong_value_is_refused_with_its_key_value_and_place(override, words):
    with pytest.raises(UnsafeForGymError, match=words) as refused:
        validate_config(copy.deepcopy(SAFE), overrides=[override])

    assert not isinstance(refused.value, CannotTellError)
    assert override.lstrip("+~").partition("=")[0] in str(refused.value)


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_renamed_key_is_refused_and_its_new_name_given(old, new):
    with pytest.raises(UnsafeForGymError, match="does not read it under this name") as refused:
        validate_config(copy.deepcopy(SAFE), overrides=[f"++{old}=1"])

    assert old in str(refused.value)
    assert f"Right: {new}." in str(refused.value)


@pytest.mark.parametrize(
    ("override", "key", "words"),
    [
        (f"{ROUTER}.backend_timeout_s=1300", f"{ROUTER}.backend_timeout_s", "3 tries do not fit"),
        (f"{ROUTER}.no_healthy_backend_status=400", f"{ROUTER}.no_healthy_backend_status", "max_tokens"),
        (
            "async_rl.rollout_failure.nemo_gym.rollout_timeout_s=null",
            "async_rl.rollout_failure.nemo_gym.rollout_timeout_s",
            "nothing ends a rollout that hangs",
        ),
        (f"{ROUTER}.port_range_low=5900", f"{ROUTER}.port_range_low", "overlaps env.nemo_gym"),
        (f"++{ROUTER}.diagnostics=1", f"{ROUTER}.diagnostics", "not a key that this check knows"),
    ],
)
def test_one_doubtful_value_is_a_caution_and_no_refusal(override, key, words):
    findings = validate_config(copy.deepcopy(SAFE), overrides=[override])
    told = about(key, findings)

    assert [finding.verdict for finding in told] == [Verdict.CAUTION]
    assert words in told[0].problem


def test_the_same_deadline_for_connecting_and_for_all_is_allowed():
    findings = judged(f"{ROUTER}.connect_timeout_s=600")

    assert {finding.verdict for finding in findings} == {Verdict.SAFE}


def test_a_number_in_quotes_is_a_number_as_it_is_for_pydantic():
    assert validate_config(copy.deepcopy(SAFE), overrides=[f"{ROUTER}.backend_timeout_s='600'"])


def test_a_router_without_the_other_keys_has_nemo_rls_defaults():
    findings = validate_config(
        {
            "async_rl": {"generation_router": {"enabled": True}, "generation_fleet_health": {"enabled": True}},
        }
    )

    assert about(f"{ROUTER}.no_healthy_backend_status", findings)[0].value == 409
    assert DEFAULTS[f"{ROUTER}.backend_timeout_s"] == 600


def test_a_router_that_is_off_in_a_run_without_gym_is_only_a_caution():
    config = copy.deepcopy(SAFE)
    del config["env"]
    findings = validate_config(config, overrides=[f"{ROUTER}.enabled=false"])

    assert about(f"{ROUTER}.enabled", findings)[0].verdict is Verdict.CAUTION


def test_a_configuration_without_a_router_is_nothing_to_judge():
    with pytest.raises(CannotTellError, match="nothing to judge"):
        validate_config({"async_rl": {"max_inflight_prompts": 3}, "grpo": {"num_prompts_per_step": 1}})


def test_the_worst_finding_comes_first():
    findings = judged(f"{ROUTER}.no_healthy_backend_status=503", f"{ROUTER}.backend_timeout_s=1300")

    assert [f.verdict for f in findings][:2] == [Verdict.UNSAFE, Verdict.CAUTION]


def test_a_finding_names_the_file_that_set_the_value(tmp_path):
    (tmp_path / "base.yaml").write_text("async_rl:\n  generation_router: {no_healthy_backend_status: 503}\n")
    child = tmp_path / "run.yaml"
    child.write_text("defaults: base.yaml\nasync_rl:\n  generation_router: {backend_timeout_s: 100}\n")
    with pytest.raises(UnsafeForGymError, match=r"base\.yaml: .*no_healthy_backend_status = 503"):
        validate_config(child)
