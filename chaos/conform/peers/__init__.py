"""Routers that are known by name, how each is started, and what of it this machine has.

Nothing here installs anything, and nothing judges.
"""

from .presets import PRESETS, Preset, PresetError, find
from .programs import missing, version

__all__ = ["PRESETS", "Preset", "PresetError", "find", "missing", "version"]
