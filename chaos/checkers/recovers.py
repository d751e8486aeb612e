"""When the faults are healed, rollouts complete again and every shard gets its share."""

from ..history import History
from .base import Status, Verdict, passed, unknown


def check(history: History) -> Verdict:
    """Fail if the fleet did not come back within `recover_within_s`, or not all of it."""
    recovery = history.recovery
    if recovery is None:
        return unknown("the run ended before its recovery was looked at")
    missing = sorted(set(range(history.limits.shards)) - set(recovery.serving))
    within = history.limits.recover_within_s
    if recovery.recovered is None or missing:
        gone = f"shards {missing} served nothing" if missing else "rollouts did not complete"
        return Verdict(Status.FAIL, f"{gone} within {within:g} s of the healing", (recovery.detail,))
    took = recovery.recovered - recovery.healed
    if took > within:
        return Verdict(Status.FAIL, f"recovery took {took:.1f} s, {within:g} s are allowed", (recovery.detail,))
    return passed(f"every shard served again {took:.1f} s after the healing")
