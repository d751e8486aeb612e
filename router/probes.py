"""The router's own monitor, for fleets that have no controller.

Probes use connections and timeouts of their own, so that they neither wait for user traffic nor take its places. What
they say is weighed in `health`: a `/health` that passes readmits nothing by itself, and one that is slow condemns no
shard that is at work.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import orjson

from .failures import AttemptError, Outcome
from .fleet import Fleet
from .headers import request_head
from .health import Event, Readmit, State
from .judge import judge
from .rounds import Rounds
from .shard import Shard
from .transport import Pool
from .upstream_connection import Response
from .urls import Endpoint

MAX_PROBE_ANSWER = 8 << 20
# A first token can wait behind a long prefill.
GENERATION_TIMEOUTS = 5


class Finding(Enum):
    """What one probe found."""

    WELL = auto()
    REFUSED = auto()  # nobody listens, or the generation failed
    UNANSWERED = auto()  # no answer in time, or an unwell one
    UNTESTABLE = auto()  # the backend has no such endpoint, or wants credentials


# What a /health without that route, or behind a key, says: nothing, but somebody is there.
NO_SUCH_PROBE = frozenset({400, 401, 403, 404, 405, 422})


def read_health(status: int) -> Finding:
    """The meaning of an answer to GET /health."""
    return Finding.WELL if status < 400 or status in NO_SUCH_PROBE else Finding.UNANSWERED  # noqa: PLR2004


def read_generation(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Finding:
    """The meaning of an answer to a one-token completion."""
    if status in NO_SUCH_PROBE:
        return Finding.UNTESTABLE
    outcome, _ = judge(status, headers, body, MAX_PROBE_ANSWER)
    match outcome:
        case Outcome.SERVED:
            return Finding.WELL
        case Outcome.BUSY | Outcome.ABORTED | Outcome.REJECTED:
            return Finding.UNANSWERED
        case _:
            return Finding.REFUSED


def wants_generation(state: State, readmit: Readmit) -> bool:
    """Whether a shard in this state is asked for a token: only where the answer can change something."""
    return state is State.SUSPECT or (state is State.STALE and readmit is Readmit.PROBE)


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Times in seconds."""

    interval_s: float = 1.0
    timeout_s: float = 2.0
    readmit: Readmit = Readmit.PROBE


async def ask(
    shard: Shard, pool: Pool, method: bytes, path: bytes, body: bytes = b"", *, timeout_s: float
) -> Response | Finding:
    """The answer to one probe; UNANSWERED when it took too long, REFUSED when it failed in any other way."""
    endpoint = shard.endpoint
    lines = b"Content-Type: application/json\r\n" if body else b""
    head = request_head(method, endpoint.base_path + path, endpoint.authority, lines, len(body))
    try:
        return await pool.exchange(head, body, time.monotonic() + timeout_s)
    except AttemptError as error:
        slow = error.outcome in {Outcome.HUNG, Outcome.OUT_OF_TIME, Outcome.EXHAUSTED}
        return Finding.UNANSWERED if slow else Finding.REFUSED


async def ask_generation(shard: Shard, pool: Pool, timeout_s: float) -> Finding:
    """What a request for one token finds; the model's name is asked for first. Each may take `timeout_s`."""
    models = await ask(shard, pool, b"GET", b"/v1/models", timeout_s=timeout_s)
    if isinstance(models, Finding):
        return models
    model = first_model(models.body) if models.status < 300 else None  # noqa: PLR2004
    if model is None:
        return Finding.UNTESTABLE
    body = orjson.dumps({"model": model, "prompt": "a", "max_tokens": 1})
    answer = await ask(shard, pool, b"POST", b"/v1/completions", body, timeout_s=timeout_s)
    if isinstance(answer, Finding):
        return answer
    return read_generation(answer.status, list(answer.headers), answer.body)


class Monitor:
    """Probes every member."""

    def __init__(self, fleet: Fleet, settings: ProbeSettings, make_pool: Callable[[Endpoint], Pool]) -> None:
        self._fleet = fleet
        self._settings = settings
        self._make_pool = make_pool

    async def run(self) -> None:
        """Probe until cancelled."""
        await Rounds(lambda: self._fleet.members, self._settings.interval_s, self.check).run()

    async def check(self, shard: Shard) -> None:
        """Probe one shard once and tell the ledger."""
        pool = self._make_pool(shard.endpoint)
        timeout_s = self._settings.timeout_s
        try:
            started = time.monotonic()
            answer = await ask(shard, pool, b"GET", b"/health", timeout_s=timeout_s)
            finding = answer if isinstance(answer, Finding) else read_health(answer.status)
            self._tell(shard, finding, Event.ANSWERS, started)
            if finding is Finding.WELL and wants_generation(shard.record.state, self._settings.readmit):
                started = time.monotonic()
                finding = await ask_generation(shard, pool, timeout_s * GENERATION_TIMEOUTS)
                self._tell(shard, finding, Event.GENERATED, started)
        finally:
            pool.close()

    def _tell(self, shard: Shard, finding: Finding, good: Event, started: float) -> None:
        match finding:
            case Finding.WELL:
                self._fleet.observe(shard, good, f"probe: {good.name.lower()}")
            case Finding.UNTESTABLE:
                self._fleet.observe(shard, Event.UNTESTABLE, "probe: no way to ask for a generation")
            case Finding.REFUSED:
                self._fleet.probe_refused(shard, started, gone=good is Event.ANSWERS)
            case Finding.UNANSWERED:
                self._fleet.probe_unanswered(shard, started)


def first_model(body: bytes) -> str | None:
    """The first model id of a /v1/models answer, or None."""
    try:
        model = orjson.loads(body)["data"][0]["id"]
    except (ValueError, LookupError, TypeError):
        return None
    return model if isinstance(model, str) else None
