"""What a prime-rl configuration (TOML) says about the router in front of its engines, judged before it starts.

One function a rule, listed in RULES. Names, defaults and ports are those of prime-rl's own configuration classes
(`prime_rl/configs/inference.py` and `shared.py` in August 2026), whose tables refuse unknown keys.
"""

from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

from .findings import Finding, Verdict
from .layers import Layered
from .values import near_miss, port_of

CLIENT = "orchestrator.model.client"
SESSION_HEADER = "X-Session-ID"
METRICS_OFFSET = 21_000  # the router's own metrics port is its port and this
BACKEND_OFFSET = 100
_MANY_NODES = ("multi_node", "disaggregated")

# Closed tables; `vllm` passes on what it does not know, so it is not one.
KNOWN: Mapping[str, tuple[str, ...]] = {
    "inference": (
        *("server", "router", "backend_port", "vllm", "log", "env_vars", "use_deep_gemm", "weight_broadcast"),
        *("kv_cache_offload", "use_pd_kv_transfer", "enable_fp32_lm_head", "enable_fp32_router_logits", "deployment"),
        *("slurm", "output_dir", "dry_run"),
    ),
    "inference.server": ("host", "port", "liveness_timeout_seconds"),
    "inference.router": (
        *("type", "policy", "scorers", "prefill_scorer_overrides", "decode_scorer_overrides", "non_cached_tokens"),
        "decode_sidecar_port",
    ),
    "inference.deployment": (
        *("type", "gpus_per_node", "num_nodes", "prefill_nodes_per_replica", "decode_nodes_per_replica"),
        *("num_prefill_replicas", "num_decode_replicas", "prefill_port", "decode_port", "prefill_env_vars"),
        *("decode_env_vars", "prefill_vllm_overrides", "decode_vllm_overrides"),
    ),
    CLIENT: (
        *("wait_for_ready_timeout", "base_url", "api_key_var", "headers", "headers_from_env"),
        *("extra_headers_from_state", "skip_model_check", "admin_base_url"),
    ),
}
ROUTERS = ("vllm-router", "llm-d")


def is_prime_rl(config: Layered) -> bool:
    """Whether the tables are those of one of its runs, not of anything else that has a `[router]`."""
    return any(isinstance(config.get(block), Mapping) for block in ("orchestrator", "inference"))


def check_prime_rl(config: Layered) -> list[Finding]:
    """Every finding on one configuration; no exception for a bad value."""
    return [finding for rule in RULES for finding in rule(config)]


def _finding(config: Layered, verdict: Verdict, key: str, problem: str, right: str = "") -> Finding:
    return Finding(verdict, config.where(key), key, config.get(key), problem, right)


def unknown_keys(config: Layered) -> Iterator[Finding]:
    """Keys that a closed table does not have, with the one that was probably meant."""
    for block, known in KNOWN.items():
        for name in config.names(block):
            if name.replace("-", "_") not in known:
                near = near_miss(name, known)
                right = f"{block}.{near}." if near else f"one of {', '.join(known)}."
                yield _finding(
                    config, Verdict.UNSAFE, f"{block}.{name}", "prime-rl refuses a key it does not know", right
                )


def router_for_deployment(config: Layered) -> Iterator[Finding]:
    """A router that exists, and that the deployment can have."""
    key, deployment = "inference.router", config.get("inference.deployment.type", "single_node")
    router = config.get(key, {"type": "vllm-router"})
    if router in (None, "None"):
        if deployment in _MANY_NODES:
            yield _finding(config, Verdict.UNSAFE, key, f"{deployment} has an engine for each rank", "a router.")
        else:
            problem = "agents call the engine itself: nothing answers for it while it is dead"
            yield _finding(config, Verdict.CAUTION, key, problem)
        return
    kind = router.get("type", "vllm-router") if isinstance(router, Mapping) else router
    if kind not in ROUTERS:
        yield _finding(config, Verdict.UNSAFE, key, "no router that prime-rl starts", f"{' or '.join(ROUTERS)}.")
    elif kind == "llm-d" and deployment == "single_node":
        yield _finding(config, Verdict.UNSAFE, key, "llm-d needs a deployment of several nodes", "vllm-router.")
    else:
        yield Finding(Verdict.SAFE, config.where(key), key, kind, "agents get the router's one URL")


def ports(config: Layered) -> Iterator[Finding]:
    """The router's port, its metrics port, and one port for each engine of a node, all apart."""
    key = "inference.server.port"
    port = port_of(config.get(key, 8000))
    if port.problem is not None:
        yield _finding(config, Verdict.UNSAFE, key, port.problem, "a port in 1..65535.")
        return
    if port.value + METRICS_OFFSET > 65535:  # noqa: PLR2004
        problem = f"the router's metrics port is this and {METRICS_OFFSET}, which is no port"
        yield _finding(config, Verdict.UNSAFE, key, problem, f"at most {65535 - METRICS_OFFSET}.")
    gpus, tp = config.get("inference.deployment.gpus_per_node", 8), config.get("inference.vllm.tensor_parallel_size", 1)
    if not all(isinstance(number, int) and number > 0 for number in (gpus, tp)):
        return
    if gpus % tp:
        problem = f"does not divide gpus_per_node ({gpus}): " + ("no engine fits" if tp > gpus else "GPUs stay idle")
        yield _finding(config, Verdict.UNSAFE, "inference.vllm.tensor_parallel_size", problem, f"a divisor of {gpus}.")
    first = port_of(config.get("inference.backend_port", port.value + BACKEND_OFFSET))
    if first.problem is None and first.value <= port.value < first.value + max(gpus // tp, 1):
        problem = f"one of the engines' ports, from {first.value:g} on, is the router's ({port.value:g})"
        yield _finding(config, Verdict.UNSAFE, "inference.backend_port", problem, f"{port.value + BACKEND_OFFSET:g}.")


def base_url(config: Layered) -> Iterator[Finding]:
    """Where agents call: the router, not one engine behind it."""
    key = f"{CLIENT}.base_url"
    if not config.has(key):
        return
    parts = urlsplit(str(config.get(key)))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        yield _finding(config, Verdict.UNSAFE, key, "no http:// or https:// URL with a host", "http://HOST:PORT/v1.")
        return
    port = config.get("inference.server.port", 8000)
    if config.has("inference") and parts.port == config.get("inference.backend_port", port + BACKEND_OFFSET):
        problem = "an engine's own port: agents go past the router, and die with that engine"
        yield _finding(config, Verdict.UNSAFE, key, problem, f"port {port}, the router's.")


def admin_urls(config: Layered) -> Iterator[Finding]:
    """Pauses and weight updates have to reach every engine, and a router hands them to one."""
    key, base = f"{CLIENT}.admin_base_url", config.get(f"{CLIENT}.base_url")
    admin = config.get(key)
    if (
        isinstance(admin, list)
        and base is not None
        and str(base).rstrip("/") in {str(one).rstrip("/") for one in admin}
    ):
        problem = "has the router's URL: a pause or a weight update would reach one engine of all"
        yield _finding(config, Verdict.UNSAFE, key, problem, "the URL of each engine.")
    elif admin is None and base is not None and not config.has("inference"):
        problem = "not set, so pauses and weight updates go to base_url; that is right for one engine only"
        yield _finding(config, Verdict.CAUTION, key, problem, "the URL of each engine, if base_url is a router's.")


def session_header(config: Layered) -> Iterator[Finding]:
    """A header that tells rollouts apart has to differ between them."""
    for table in ("headers", "headers_from_env"):
        for name in config.names(f"{CLIENT}.{table}"):
            if name.lower() == SESSION_HEADER.lower():
                problem = "one value for every rollout: a router that goes by it sends them all to one engine"
                right = f'{CLIENT}.extra_headers_from_state, as {{"{SESSION_HEADER}" = "trajectory_id"}}.'
                yield _finding(config, Verdict.UNSAFE, f"{CLIENT}.{table}.{name}", problem, right)


Rule = Callable[[Layered], Iterator[Finding]]
RULES: tuple[Rule, ...] = (unknown_keys, router_for_deployment, ports, base_url, admin_urls, session_header)
