"""Is the fleet over-full? Above its KV capacity no placement helps: sessions evict each other wherever they are."""

from collections import deque

from .base import Pressure, Sample

FULL_USAGE = 0.75
FALL = 0.05  # of the hit rate, under the best minute of late
ROUND_S = 5.0
WINDOW = 12  # rounds: a minute
MEMORY = 720  # rounds: an hour, in which the best minute fades to what another kind of work can reach


class PressureGauge:
    """Adds up the samples of a fleet. No clock but the one that is passed in."""

    def __init__(self) -> None:
        self._hits = self._queries = 0.0
        self._round_at = float("-inf")
        self._window: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._best = 0.0
        self.now = Pressure()

    def note(self, last: Sample | None, sample: Sample) -> None:
        """One more sample of an engine after its `last`; counters that went down are a restarted engine's."""
        if last is not None and last.queries <= sample.queries and last.hits <= sample.hits:
            self._queries += sample.queries - last.queries
            self._hits += sample.hits - last.hits

    def round_is_over(self, now: float) -> bool:
        """Whether it is time to judge."""
        return now - self._round_at >= ROUND_S

    def judge(self, usages: list[float], now: float) -> None:
        """Judge by the usages of all fresh samples and the hit rate of the last minute."""
        self._round_at = now
        self._window.append((self._hits, self._queries))
        self._hits = self._queries = 0.0
        usage = sum(usages) / len(usages) if usages else None
        queries = sum(asked for _, asked in self._window)
        rate = sum(found for found, _ in self._window) / queries if queries else None
        if rate is not None and len(self._window) == WINDOW:
            self._best = max(rate, self._best + (rate - self._best) / MEMORY)
        full = usage is not None and rate is not None and usage > FULL_USAGE and rate < self._best - FALL
        self.now = Pressure(full, usage, rate)
