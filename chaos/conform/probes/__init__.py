"""What is asked of a router beside faults: payloads, headers, paths, affinity, cancellation, load, restart."""

from .bench import Bench
from .run import PROBES, Probe, probe

__all__ = ["PROBES", "Bench", "Probe", "probe"]
