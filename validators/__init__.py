"""Which answers NeMo-Gym retries without bound, and whether a status, a configuration or a router is safe for it.

Importing this is cheap: no aiohttp, no OmegaConf, no nemo_gym before something needs them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .contract import (
    Behaviour,
    Contract,
    Difference,
    Handling,
    differences,
    load_contract,
    shipped_versions,
)
from .findings import CannotTellError, Finding, UnsafeForGymError, Verdict
from .status import judge_status, validate_status

if TYPE_CHECKING:
    from .config import judge_config, validate_config

__all__ = [
    "Behaviour",
    "CannotTellError",
    "Contract",
    "Difference",
    "Finding",
    "Handling",
    "UnsafeForGymError",
    "Verdict",
    "differences",
    "judge_config",
    "judge_status",
    "load_contract",
    "shipped_versions",
    "validate_config",
    "validate_status",
]


def __getattr__(name: str) -> Any:
    """`judge_config` and `validate_config`, whose OmegaConf is loaded at first use."""
    if name not in ("judge_config", "validate_config"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(".config", __name__), name)
