"""Whatever is in a configuration or an override: a finding or the one documented error, never another."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from gymproof.validators import Finding, UnsafeForGymError, judge_config

NAMES = st.sampled_from(
    [
        "async_rl",
        "generation_router",
        "generation_fleet_health",
        "enabled",
        "rollout_failure",
        "nemo_gym",
        "rollout_timeout_s",
        "backend_timeout_s",
        "no_healthy_backend_status",
        "port_range_low",
        "router",
        "policy_router",
        "env",
        "port",
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["???", "${nowhere}", "${router}", "${mul:2,x}", "${env:", "409", "", "[1", "{a", "\x00", "$"]),
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4))
CONFIGS = st.dictionaries(NAMES, VALUES, max_size=5)
KEYS = st.lists(NAMES, min_size=1, max_size=4).map(".".join)
OVERRIDES = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "+", "++", "~"]),
    KEYS,
    st.one_of(st.just(""), st.text(max_size=8).map("={}".format), SCALARS.map("={}".format)),
)


@settings(max_examples=100)
@given(config=CONFIGS, overrides=st.lists(OVERRIDES, max_size=3))
def test_any_configuration_gets_findings_or_the_one_error(config, overrides):
    with suppress(UnsafeForGymError):
        findings = judge_config(config, overrides=overrides)
        assert findings
        assert all(isinstance(finding, Finding) and str(finding) for finding in findings)
