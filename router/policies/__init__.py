"""Who serves next: one policy a file, and the table of them.

A policy sees only what may serve, so a dead shard can never influence a choice.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from .base import Choice, Policy, PolicySettings, Pressure, Sample, Turn
from .consistent_hash import ConsistentHash
from .counting import LeastOutstanding, PowerOfTwo, RoundRobin
from .session import SessionPolicy

__all__ = ["POLICIES", "Choice", "Policy", "PolicySettings", "Pressure", "Sample", "Turn"]

POLICIES: Mapping[str, Callable[[PolicySettings, Random], Policy[Any]]] = {
    "session": SessionPolicy,
    "consistent_hash": ConsistentHash,
    "least_outstanding": LeastOutstanding,
    "power_of_two": PowerOfTwo,
    "round_robin": RoundRobin,
}
