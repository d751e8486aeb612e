"""Checks one configuration file, whichever of the three kinds it is: NeMo-RL's, prime-rl's, or our router's."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .contract import Contract, load_contract
from .findings import Finding, UnsafeForGymError, Verdict, cannot_tell, worst
from .layers import Layered, load_layers
from .nemo_rl import ROUTER, check_nemo_rl
from .prime_rl import check_prime_rl, is_prime_rl
from .router_config import KEYS, check_router

_NEMO_RL_BLOCKS = ("async_rl", "grpo", "cluster", "loss_fn", "env", "data")


def judge_config(
    path_or_mapping: str | Path | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    contract: Contract | None = None,
) -> list[Finding]:
    """Every finding on a configuration, worst first; CannotTellError when it holds nothing to judge."""
    contract = contract or load_contract()
    layered = _load(path_or_mapping, overrides)
    if any(isinstance(layered.get(block), Mapping) for block in _NEMO_RL_BLOCKS):
        return _worst_first(_judge_nemo_rl(layered, contract))
    if is_prime_rl(layered):
        return _worst_first(check_prime_rl(layered) or [_nothing_wrong(layered)])
    table = layered.get("router")
    if table is None:
        table = {str(key): layered.get(str(key)) for key in layered.merged}
    if not isinstance(table, Mapping) or not (KEYS & set(table) or layered.has("router")):
        raise cannot_tell(
            layered.source,
            "file",
            Path(layered.source).name,
            "neither a configuration of NeMo-RL or prime-rl nor one of gym-router",
            f"a file with {ROUTER}, [inference] or [router].",
        )
    findings = check_router(table, layered.source, contract)
    return _worst_first(findings or [_nothing_wrong(layered)])


def validate_config(
    path_or_mapping: str | Path | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    contract: Contract | None = None,
) -> list[Finding]:
    """Check a NeMo-RL YAML (with `defaults:` and Hydra-style `overrides`), a router's TOML or YAML, or a mapping.

    Returns the findings that are no reason to stop. Raises UnsafeForGymError, naming file, key
    and value, for a configuration that is unsafe for NeMo-Gym, and its child CannotTellError
    for one that cannot be read.
    """
    findings = judge_config(path_or_mapping, overrides=overrides, contract=contract)
    if worst(findings) is Verdict.UNSAFE:
        raise UnsafeForGymError(findings)
    return findings


def _load(path_or_mapping: str | Path | Mapping[str, Any], overrides: Sequence[str]) -> Layered:
    if isinstance(path_or_mapping, Mapping) or Path(path_or_mapping).suffix != ".toml":
        return load_layers(path_or_mapping, overrides)
    path = Path(path_or_mapping)
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise cannot_tell(
            str(path), "file", path.name, f"cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    return load_layers(table, overrides, source=str(path))


def _judge_nemo_rl(layered: Layered, contract: Contract) -> list[Finding]:
    findings = check_nemo_rl(layered, contract)
    if not layered.has(ROUTER) and not any(f.verdict is Verdict.UNSAFE for f in findings):
        raise cannot_tell(layered.source, ROUTER, None, "not in the file or its defaults, so there is nothing to judge")
    return findings


def _worst_first(findings: Sequence[Finding]) -> list[Finding]:
    order = [Verdict.UNSAFE, Verdict.UNKNOWN, Verdict.CAUTION, Verdict.SAFE]
    return sorted(findings, key=lambda finding: order.index(finding.verdict))


def _nothing_wrong(layered: Layered) -> Finding:
    return Finding(Verdict.SAFE, layered.source, "router", "", "nothing in it that NeMo-Gym would notice")
