"""Which answers NeMo-Gym and other clients retry without bound, and which statuses and routers are safe for them.

Importing this is cheap: no aiohttp, no OmegaConf, no nemo_gym before something needs them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .contract import (
    CLIENT,
    Behaviour,
    Contract,
    Difference,
    Handling,
    Timing,
    contract_of,
    differences,
    load_contract,
    shipped_clients,
    shipped_versions,
)
from .findings import CannotTellError, Finding, UnsafeForGymError, Verdict
from .status import judge_status, right_status, validate_status

if TYPE_CHECKING:
    from .config import judge_config, validate_config

__all__ = [
    "CLIENT",
    "Behaviour",
    "CannotTellError",
    "Contract",
    "Difference",
    "Finding",
    "Handling",
    "Timing",
    "UnsafeForGymError",
    "Verdict",
    "contract_of",
    "differences",
    "judge_config",
    "judge_status",
    "load_contract",
    "right_status",
    "shipped_clients",
    "shipped_versions",
    "validate_config",
    "validate_status",
]


def __getattr__(name: str) -> Any:
    """`judge_config` and `validate_config`, whose OmegaConf is loaded at first use."""
    if name not in ("judge_config", "validate_config"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(".config", __name__), name)
