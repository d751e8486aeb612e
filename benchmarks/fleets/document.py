"""The published table, and what Little's law says of it.

A closed loop of N rollouts has N = X * (R + Z): X requests a second, R seconds a request inside the engines, Z seconds
a turn outside them (tools, the client, the orchestrator).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .results import Column

ROLLOUTS = 256
DOCUMENT: Mapping[str, Column] = {
    "baseline": Column(349_200, 10.67, 0.969, 0.34, 0.026, 0.009, 105, 10.2),
    "unified": Column(400_300, 12.44, 0.969, 0.76, 0.028, 0.073, 127, 10.9),
    "wide-EP": Column(91_000, 3.74, 0.955, 0.43, 0.143, 0.003, 203, 51.3),
}


def outside_s(column: Column, rollouts: int = ROLLOUTS) -> float:
    """Z: the time of a turn that is not spent in an engine."""
    return rollouts / column.requests_per_s - column.e2e_s


def in_flight(column: Column) -> float:
    """Little's law for the engines alone; what the table calls running, and those that queue."""
    return column.requests_per_s * column.e2e_s


@dataclass(frozen=True, slots=True)
class Reading:
    """Where the unified column's gain in requests/s can come from; gains are shares of the baseline's requests/s."""

    gain: float
    outside_before_s: float
    outside_after_s: float
    gain_at_old_outside: float  # its own R, the baseline's Z
    gain_of_outside_alone: float  # the baseline's R, its own Z
    gain_without_ttft: float  # the baseline, if TTFT and queue cost nothing


def read(
    before: Column = DOCUMENT["baseline"], after: Column = DOCUMENT["unified"], rollouts: int = ROLLOUTS
) -> Reading:
    """Take the gain of one column over another apart."""
    outside_before, outside_after = outside_s(before, rollouts), outside_s(after, rollouts)

    def gain(engine_s: float, outside: float) -> float:
        return rollouts / (engine_s + outside) / before.requests_per_s - 1

    return Reading(
        gain=after.requests_per_s / before.requests_per_s - 1,
        outside_before_s=outside_before,
        outside_after_s=outside_after,
        gain_at_old_outside=gain(after.e2e_s, outside_before),
        gain_of_outside_alone=gain(before.e2e_s, outside_after),
        gain_without_ttft=gain(before.e2e_s - before.ttft_s, outside_before),
    )
