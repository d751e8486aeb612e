"""gymproof.router: one stable URL in front of a vLLM fleet, whose every failure becomes an answer NeMo-Gym survives.

Importing this is cheap: what is named here is loaded at first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import ConfigError, RouterConfig
    from .impl import GenerationRouterImpl

__all__ = ["ConfigError", "GenerationRouterImpl", "RouterConfig"]

_HOMES = {"ConfigError": ".config", "GenerationRouterImpl": ".impl", "RouterConfig": ".config"}


def __getattr__(name: str) -> Any:
    """The public names, from the modules that define them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)
