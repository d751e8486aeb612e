"""What a NeMo-RL configuration says about the router in front of NeMo-Gym, judged against the contract.

One function a rule, listed in RULES; each takes the loaded configuration and yields findings.
Defaults are those of NeMo-RL's own configuration classes (its
`nemo_rl/algorithms/single_controller_utils/config.py` in August 2026).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .contract import Contract
from .findings import Finding, Verdict
from .layers import Layered
from .status import judge_status
from .values import Number, near_miss, port_of, seconds_of

ROUTER = "async_rl.generation_router"
FLEET_HEALTH = "async_rl.generation_fleet_health.enabled"
ROLLOUT_TIMEOUT = "async_rl.rollout_failure.nemo_gym.rollout_timeout_s"
USES_GYM = "env.should_use_nemo_gym"

DEFAULTS: Mapping[str, Any] = {
    f"{ROUTER}.enabled": False,
    f"{ROUTER}.port_range_low": 6000,
    f"{ROUTER}.port_range_high": 6099,
    f"{ROUTER}.backend_timeout_s": 600.0,
    f"{ROUTER}.connect_timeout_s": 5.0,
    f"{ROUTER}.no_healthy_backend_status": 409,
    FLEET_HEALTH: False,
    ROLLOUT_TIMEOUT: None,
}

# Old name -> new one. NeMo-RL refuses to start on these, and versions before the rename read only the old. The blocks
# at the top level are where people put them by mistake.
RENAMED: Mapping[str, str] = {
    "generation_router": ROUTER,
    "generation_fleet_health": "async_rl.generation_fleet_health",
    "rollout_failure": "async_rl.rollout_failure",
    "async_rl.policy_router": ROUTER,
    "async_rl.fleet_health": "async_rl.generation_fleet_health",
    "async_rl.watchdog": "async_rl.stall_watchdog",
    "async_rl.rollout_timeout_s": ROLLOUT_TIMEOUT,
    "async_rl.generation_timeout_s": "async_rl.rollout_failure.native.generation_timeout_s",
    "async_rl.env_timeout_s": "async_rl.rollout_failure.native.env_timeout_s",
    "async_rl.rollout_failure.max_attempts_per_prompt": "async_rl.rollout_failure.max_infra_attempts_per_prompt",
    "async_rl.rollout_failure.on_data_exhausted": "async_rl.rollout_failure.max_skipped_prompts",
    "async_rl.rollout_failure.max_gym_row_attempts": "async_rl.rollout_failure.nemo_gym.max_row_attempts",
}
_KNOWN_BLOCKS: Mapping[str, tuple[str, ...]] = {
    ROUTER: tuple(key.rpartition(".")[2] for key in DEFAULTS if key.startswith(f"{ROUTER}.")),
    "async_rl": ("generation_router", "generation_fleet_health", "rollout_failure"),
    "async_rl.rollout_failure": ("nemo_gym",),
    "async_rl.rollout_failure.nemo_gym": ("rollout_timeout_s",),
}
# Ranges that NeMo-RL and NeMo-Gym take their own ports from, half-open, with their defaults.
_OTHER_PORTS: Mapping[str, tuple[int, int]] = {
    "env.nemo_gym": (5000, 5999),
    "policy.generation": (3000, 4999),
    "cluster.master": (1400, 1999),
}


def check_nemo_rl(config: Layered, contract: Contract) -> list[Finding]:
    """Every finding on one configuration, safe ones too; no exception for a bad value."""
    return [finding for rule in RULES for finding in rule(config, contract)]


def _value(config: Layered, key: str) -> Any:
    return config.get(key, DEFAULTS.get(key))


def _finding(config: Layered, verdict: Verdict, key: str, problem: str, right: str = "") -> Finding:
    return Finding(verdict, config.where(key), key, _value(config, key), problem, right)


def _seconds(config: Layered, key: str) -> float | None:
    number = seconds_of(_value(config, key))
    return number.value if number.problem is None else None


def renamed_keys(config: Layered, _contract: Contract) -> Iterator[Finding]:
    """Keys under a name that NeMo-RL gave up, and keys that are one slip away from a known one."""
    for old, new in RENAMED.items():
        if config.has(old) and config.get(old) is not None:
            yield _finding(config, Verdict.UNSAFE, old, "NeMo-RL does not read it under this name", f"{new}.")
    for block, known in _KNOWN_BLOCKS.items():
        for name in config.names(block):
            key = f"{block}.{name}"
            if name in known or key in RENAMED:
                continue
            near = near_miss(name, known)
            if near is not None:
                problem = "NeMo-RL ignores it without a word, so the default holds"
                yield _finding(config, Verdict.UNSAFE, key, problem, f"{block}.{near}.")
            elif block == ROUTER:
                yield _finding(config, Verdict.CAUTION, key, "not a key that this check knows")


def router_switch(config: Layered, _contract: Contract) -> Iterator[Finding]:
    """A router that is off while Gym is on, or on while Gym is off."""
    key, uses_gym = f"{ROUTER}.enabled", config.get(USES_GYM)
    enabled = _value(config, key)
    if not isinstance(enabled, bool):
        yield _finding(config, Verdict.UNSAFE, key, "neither true nor false", "true.")
    elif enabled and uses_gym is False:
        yield _finding(
            config, Verdict.UNSAFE, USES_GYM, "NeMo-RL refuses a router without NeMo-Gym", f"true, or {key}: false."
        )
    elif not enabled and uses_gym:
        problem = "NeMo-Gym talks to the engines itself, and retries one that is dead without bound"
        yield _finding(config, Verdict.UNSAFE, key, problem, "true.")
    elif not enabled:
        yield _finding(config, Verdict.CAUTION, key, "the router is off; what follows holds once it is on")
    else:
        yield _finding(config, Verdict.SAFE, key, "NeMo-Gym gets the router's one URL")


def fleet_health(config: Layered, _contract: Contract) -> Iterator[Finding]:
    """A router that nobody tells which shards are dead."""
    if _value(config, f"{ROUTER}.enabled") is True and _value(config, FLEET_HEALTH) is not True:
        problem = (
            "the router is never told of a dead shard, and a dead shard fails fastest, so with the least "
            "requests outstanding it draws the most"
        )
        yield _finding(config, Verdict.UNSAFE, FLEET_HEALTH, problem, "true.")


def status_when_none_serves(config: Layered, contract: Contract) -> Iterator[Finding]:
    """The status for a fleet with nothing left."""
    key = f"{ROUTER}.no_healthy_backend_status"
    value = _value(config, key)
    try:
        status = int(value) if not isinstance(value, bool) else int("not a status")
        yield judge_status(status, role="give_up", contract=contract, source=config.where(key), key=key)
    except (TypeError, ValueError):
        yield _finding(config, Verdict.UNSAFE, key, "not a status in 200..599", "409.")


def timeouts(config: Layered, _contract: Contract) -> Iterator[Finding]:
    """Deadlines that are deadlines, each inside the next."""
    backend, connect = f"{ROUTER}.backend_timeout_s", f"{ROUTER}.connect_timeout_s"
    for key in (backend, connect):
        number = seconds_of(_value(config, key))
        yield from _bad_number(config, key, number, "a positive number of seconds.")
    rollout = _value(config, ROLLOUT_TIMEOUT)
    if rollout is not None:
        yield from _bad_number(config, ROLLOUT_TIMEOUT, seconds_of(rollout), "a positive number of seconds, or null.")
    inner, outer = _seconds(config, connect), _seconds(config, backend)
    if inner is not None and outer is not None and inner > outer:
        problem = f"longer than {backend} ({outer:g}), so it can never fire"
        yield _finding(config, Verdict.UNSAFE, connect, problem, f"at most {outer:g}; 5 is plenty for one handshake.")


def rollout_deadline(config: Layered, contract: Contract) -> Iterator[Finding]:
    """The router's deadline against the rollout's, with the client's retries in between."""
    backend = f"{ROUTER}.backend_timeout_s"
    inner, outer = _seconds(config, backend), _seconds(config, ROLLOUT_TIMEOUT)
    if _value(config, ROLLOUT_TIMEOUT) is None:
        problem = "nothing ends a rollout that hangs, and NeMo-Gym's client has no timeout at all"
        yield _finding(config, Verdict.CAUTION, ROLLOUT_TIMEOUT, problem, f"more than {backend} ({inner or 0:g}).")
    elif inner is not None and outer is not None:
        tries = contract.status(500).tries or 1
        if inner > outer:
            problem = f"longer than {ROLLOUT_TIMEOUT} ({outer:g}), so the router's deadline never fires"
            yield _finding(
                config, Verdict.UNSAFE, backend, problem, f"at most {outer / tries:g}: a 500 is tried {tries} times."
            )
        elif inner * tries > outer:
            problem = (
                f"a wedged shard costs this much a try, and {tries} tries do not fit into {ROLLOUT_TIMEOUT} ({outer:g})"
            )
            yield _finding(config, Verdict.CAUTION, backend, problem, f"at most {outer / tries:g}.")


def port_range(config: Layered, _contract: Contract) -> Iterator[Finding]:
    """A range that holds a port, and holds it for the router alone."""
    low_key, high_key = f"{ROUTER}.port_range_low", f"{ROUTER}.port_range_high"
    low, high = port_of(_value(config, low_key)), port_of(_value(config, high_key))
    yield from _bad_number(config, low_key, low, "a port in 1..65535.")
    yield from _bad_number(config, high_key, high, "a port in 1..65535.")
    if low.problem or high.problem:
        return
    if low.value >= high.value:
        problem = f"not below port_range_high ({high.value:g}), so the range is empty"
        yield _finding(config, Verdict.UNSAFE, low_key, problem, "6000 and 6099 are NeMo-RL's own.")
        return
    for owner, (default_low, default_high) in _OTHER_PORTS.items():
        prefix = f"{owner}_port_range" if owner == "cluster.master" else f"{owner}.port_range"
        theirs = config.get(f"{prefix}_low", default_low), config.get(f"{prefix}_high", default_high)
        if all(isinstance(port, int) for port in theirs) and low.value < theirs[1] and theirs[0] < high.value:
            problem = f"overlaps {prefix}_low..high ({theirs[0]}..{theirs[1]}), so the port may be taken"
            yield _finding(config, Verdict.CAUTION, low_key, problem, "a range of the router's own.")


def _bad_number(config: Layered, key: str, number: Number, right: str) -> Iterator[Finding]:
    if number.problem is not None:
        yield _finding(config, Verdict.UNSAFE, key, number.problem, right)


Rule = Callable[[Layered, Contract], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    renamed_keys,
    router_switch,
    fleet_health,
    status_when_none_serves,
    timeouts,
    rollout_deadline,
    port_range,
)
