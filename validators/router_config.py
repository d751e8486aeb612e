"""What the contract has to say about a configuration of gymproof's own router (TOML or YAML).

Only the keys that decide what NeMo-Gym sees are judged, by name; the router refuses unknown
keys and checks the rest itself, when it loads the file.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from .contract import Contract, contract_of
from .findings import Finding, Verdict
from .status import Role, judge_status
from .values import Number, port_of, seconds_of

STATUSES: Mapping[str, Role] = {"backend_failure_status": "retry", "no_healthy_backend_status": "give_up"}
TIMEOUTS: Mapping[str, float | None] = {  # with the router's defaults
    "backend_timeout_s": 600.0,
    "connect_timeout_s": None,  # 5, or the backend timeout if that is shorter
    "client_idle_s": 75.0,
    "rollout_timeout_s": None,
}
PORTS = ("port", "admin_port")
KEYS = frozenset({*STATUSES, *TIMEOUTS, *PORTS, "backends", "backends_file", "client"})


def check_router(config: Mapping[str, Any], source: str, contract: Contract) -> list[Finding]:
    """Every finding on one router configuration; `config` is the table itself, not the file around it.

    Its own key `client`, where it has one, says whose contract counts.
    """
    if "client" in config:
        try:
            contract = contract_of(str(config["client"]))
        except LookupError as error:
            return [Finding(Verdict.UNSAFE, source, "client", config["client"], str(error))]
    return [
        *_statuses(config, source, contract),
        *_numbers(config, source),
        *_order(config, source, contract),
    ]


def _statuses(config: Mapping[str, Any], source: str, contract: Contract) -> Iterator[Finding]:
    """Every key that ends in `_status`, so that a router with other names for them is judged too."""
    for key, value in config.items():
        if not key.endswith("_status"):
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value in contract.statuses:
            role = STATUSES.get(key, "any")
            yield judge_status(value, role=role, contract=contract, source=source, key=key)
        else:
            yield Finding(Verdict.UNSAFE, source, key, value, "not a status in 200..599", "a whole number.")


def _numbers(config: Mapping[str, Any], source: str) -> Iterator[Finding]:
    for key in TIMEOUTS:
        if config.get(key) is not None:
            yield from _bad(seconds_of(config[key]), source, key, config[key], "a positive number of seconds.")
    for key in PORTS:
        if config.get(key) is not None:
            yield from _bad(port_of(config[key], lowest=0), source, key, config[key], "0 (any) to 65535.")


def _bad(number: Number, source: str, key: str, value: Any, right: str) -> Iterator[Finding]:
    if number.problem is not None:
        yield Finding(Verdict.UNSAFE, source, key, value, number.problem, right)


def _order(config: Mapping[str, Any], source: str, contract: Contract) -> Iterator[Finding]:
    """Each deadline inside the next; NaN, for one that is not set or not a number, compares false."""
    seconds = {key: seconds_of(config.get(key, default)).value for key, default in TIMEOUTS.items()}
    patience = contract.timing.silence_s
    connect, backend, rollout = (seconds[f"{name}_timeout_s"] for name in ("connect", "backend", "rollout"))
    if connect > backend:
        problem = f"longer than backend_timeout_s ({backend:g}), so it can never fire"
        yield Finding(Verdict.UNSAFE, source, "connect_timeout_s", connect, problem, f"at most {backend:g}.")
    if backend > rollout:
        tries = contract.status(500).tries or 1
        problem = f"longer than rollout_timeout_s ({rollout:g}), so the router's deadline never fires"
        right = f"at most {rollout / tries:g}: a 500 is tried {tries} times."
        yield Finding(Verdict.UNSAFE, source, "backend_timeout_s", backend, problem, right)
    if patience is not None and "backend_timeout_s" in config and backend >= patience:
        problem = f"{contract.client} ends the request itself after {patience:g} s, and asks again beside the first"
        yield Finding(Verdict.UNSAFE, source, "backend_timeout_s", backend, problem, f"less than {patience:g}.")
    if seconds["client_idle_s"] <= (idle_s := contract.timing.idle_s):
        problem = (
            f"the client keeps idle connections for {idle_s:g} s; a router that closes them first "
            "makes it send a request twice"
        )
        right = f"more than {idle_s:g}."
        yield Finding(Verdict.CAUTION, source, "client_idle_s", seconds["client_idle_s"], problem, right)
