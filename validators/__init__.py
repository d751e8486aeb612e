"""Which answers NeMo-Gym retries without bound, and whether a status, a configuration or a router is safe for it.

Importing this is cheap: no aiohttp, no OmegaConf, no nemo_gym before something needs them.
"""

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
    "judge_status",
    "load_contract",
    "shipped_versions",
    "validate_status",
]
