"""What Prometheus has of `vllm:*`: a range as `query_range` answers it, or one moment in the text format.

A shard is wedged where requests run and no token comes, and gone where it was not scraped between two moments at
which it was.
"""

from itertools import pairwise

import orjson
from prometheus_client.parser import text_string_to_metric_families

from .base import LogFormat, Reading, Sign, harm

_RUNNING, _TOKENS = "vllm:num_requests_running", "vllm:generation_tokens_total"
_STILL_SAMPLES = 5  # that long without a token is a stall; a prefill is shorter than some scrapes
_GONE_INTERVALS = 3
Samples = dict[float, float]


def _is_range(text: str) -> bool:
    return text.lstrip().startswith("{") and '"matrix"' in text[:400]


def _read_range(text: str, file: str) -> Reading:
    reading = Reading(file, "Prometheus range")
    try:
        series = orjson.loads(text)["data"]["result"]
        found: dict[tuple[str, str], Samples] = {}
        for one in series:
            key = (reading.name(one["metric"]["instance"]), one["metric"]["__name__"])
            found.setdefault(key, {}).update({float(at): float(value) for at, value in one["values"]})
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError) as error:
        reading.broken(1, f"{type(error).__name__}: {error}: {text}")
        return reading
    for shard in reading.shards:
        running, tokens = found.get((shard, _RUNNING)), found.get((shard, _TOKENS))
        if not running or not tokens:
            reading.gaps.append(f"{shard}: {_RUNNING} and {_TOKENS} are both needed to tell a stall")
        reading.signs += _judge(file, shard, running or {}, tokens or {})
    return reading


def _judge(file: str, shard: str, running: Samples, tokens: Samples) -> list[Sign]:
    signs: list[Sign] = []
    times = sorted(running.keys() & tokens.keys())
    still = times[:1]
    for before, now in pairwise(times):
        if running[now] > 0 and running[before] > 0 and tokens[now] == tokens[before]:
            still.append(now)
            continue
        signs += _stalls(file, shard, running, still)
        still = [now]
    signs += _stalls(file, shard, running, still)
    intervals = [now - before for before, now in pairwise(times)]
    usual = min(intervals, default=0.0)
    for before, gap in zip(times, intervals, strict=False):
        if gap > _GONE_INTERVALS * usual:
            says = f"{shard} was not scraped for {gap:g} s"
            signs.append(Sign(f"{file}:{shard}@{before:.0f}", says, shard, before, harm("kill", process="group")))
    return sorted(signs, key=lambda sign: sign.at or 0.0)


def _stalls(file: str, shard: str, running: Samples, still: list[float]) -> list[Sign]:
    if len(still) <= _STILL_SAMPLES:
        return []
    seconds = still[-1] - still[0]
    says = f"{shard}: {running[still[-1]]:g} requests ran and no token came for {seconds:g} s"
    return [Sign(f"{file}:{shard}@{still[0]:.0f}", says, shard, still[0], harm("stop", process="engine"))]


def _is_text(text: str) -> bool:
    return "# TYPE vllm:" in text


def _read_text(text: str, file: str) -> Reading:
    reading = Reading(file, "Prometheus text", gaps=["one moment does not show whether tokens came: export a range"])
    try:
        samples = {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}
    except ValueError as error:
        reading.broken(1, str(error))
        return reading
    reading.signs.append(Sign(f"{file}:1", f"{samples.get(_RUNNING, 'an unknown number of')} requests ran"))
    return reading


PROMETHEUS_RANGE = LogFormat(_is_range, _read_range)
PROMETHEUS_TEXT = LogFormat(_is_text, _read_text)
