"""A run as shapes: a lane for the clients and one a shard, and latency over time. Coordinates only, no markup.

Time runs from left to right. Outcomes differ by shape as well as by colour, and states by pattern, so that neither a
colour-blind reader nor a black-and-white print loses anything.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..history import Attempt, Delivery, Ending, FaultWindow, History, Rollout, Served
from .evidence import saw

WIDTH, LEFT, RIGHT = 1000.0, 76.0, 12.0  # of the drawing, of the lanes' names, and of the empty edge
LANE, GAP = 40.0, 8.0
PLOT = 180.0  # height of the latency plot
MARKS = 3000  # in one drawing: more would weigh megabytes and hide one another
_HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class Mark:
    """One request: `shape` is its outcome's."""

    x: float
    y: float
    shape: str
    tip: str


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time in a lane: a fault, or a state other than healthy."""

    x: float
    width: float
    name: str
    tip: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane, from its top `y`."""

    name: str
    y: float
    states: tuple[Span, ...]
    faults: tuple[Span, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """A number on an axis, at `at`."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """Everything that is drawn; `left_out` marks are not, of answers that were as they should be."""

    lanes: tuple[Lane, ...]
    height: float
    seconds: tuple[Tick, ...]
    latencies: tuple[Mark, ...]
    latency_ticks: tuple[Tick, ...]
    left_out: int


# Shape: what it stands for. The order is the legend's.
SHAPES: Mapping[str, str] = {
    "circle": "200, or work that a shard finished",
    "triangle": "an answer that says: give up (4xx)",
    "square": "an answer that says: try again (5xx)",
    "cross": "no whole answer, or work without an end",
    "diamond": "cancelled, because nobody waited any more",
}


def shape_of_attempt(attempt: Attempt) -> str:
    """The shape of what a client saw."""
    if attempt.ending is Ending.CLIENT_LEFT:
        return "diamond"
    if attempt.ending is not Ending.COMPLETE or attempt.status is None:
        return "cross"
    return {2: "circle", 4: "triangle"}.get(attempt.status // 100, "square")


def shape_of_work(served: Served) -> str:
    """The shape of how a shard's work ended."""
    if served.ending is not Delivery.ANSWERED:
        return "diamond" if served.ending is Delivery.CANCELLED else "cross"
    return {2: "circle", 4: "triangle", None: "circle"}.get(served.status and served.status // 100, "square")


class Scale:
    """From seconds on the history's clock to the drawing's x."""

    def __init__(self, zero: float, end: float) -> None:
        self.zero, self.seconds = zero, max(end - zero, 1e-3)

    def __call__(self, moment: float) -> float:
        """The x of a moment; what lies outside the run is drawn at its edge."""
        share = min(max((moment - self.zero) / self.seconds, 0.0), 1.0)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def bounds(history: History, events: Iterable[Mapping[str, object]] = ()) -> tuple[float, float]:
    """The first and the last moment of a run; the router's own events count too. (0, 1) for a run without any."""
    records: tuple[Attempt | Rollout | Served, ...] = (*history.attempts, *history.rollouts, *history.served)
    moments = [record.started for record in records] + [record.ended for record in records if record.ended is not None]
    moments += [moment for window in history.faults for moment in (window.began, window.healed) if moment is not None]
    first = min(moments, default=0.0)
    last = max(moments, default=1.0)
    later = [mono for event in events if isinstance(mono := event.get("mono"), float) and event.get("event") == "state"]
    return first, max([last, *(mono for mono in later if mono < last + 5.0)])


def draw(history: History, events: Sequence[Mapping[str, object]], backends: Sequence[str]) -> Drawing:
    """The drawing of one run. `events` are the router's, of which its states are taken; `backends` in shards' order."""
    scale = Scale(*bounds(history, events))
    attempts, hidden = thinned(history.attempts, shape_of_attempt)
    served, hidden_too = thinned(history.served, shape_of_work)
    lanes = [_lane("clients", 0, _attempt_marks(attempts, scale), (), _faults(history, None, scale))]
    for shard in range(history.limits.shards):
        marks = _work_marks([one for one in served if one.shard == shard], scale, shard + 1)
        states = _states(events, backends[shard : shard + 1], scale)
        lanes.append(_lane(f"shard {shard}", shard + 1, marks, states, _faults(history, shard, scale)))
    latencies, ticks = _latencies(attempts, scale)
    return Drawing(tuple(lanes), _top(len(lanes)), _seconds(scale), latencies, ticks, hidden + hidden_too)


T = TypeVar("T")


def thinned(records: Sequence[T], shape: Callable[[T], str], most: int = MARKS) -> tuple[list[T], int]:
    """At most about `most` of them, and how many were left out. What is no circle is kept before any that is one."""
    plain = [record for record in records if shape(record) == "circle"]
    room = max(most - (len(records) - len(plain)), 0)
    if len(plain) <= room:
        return list(records)[:most], max(len(records) - most, 0)
    step = len(plain) / room if room else math.inf
    kept = {id(plain[int(number * step)]) for number in range(room)}
    chosen = [record for record in records if id(record) in kept or shape(record) != "circle"][:most]
    return chosen, len(records) - len(chosen)


def _top(lane: int) -> float:
    return lane * (LANE + GAP)


def _lane(name: str, number: int, marks: tuple[Mark, ...], states: tuple[Span, ...], faults: tuple[Span, ...]) -> Lane:
    return Lane(name, _top(number), states, faults, marks)


def _attempt_marks(attempts: Sequence[Attempt], scale: Scale) -> tuple[Mark, ...]:
    return tuple(
        Mark(
            scale(attempt.ended or attempt.started),
            _row(attempt.call, 0),
            shape_of_attempt(attempt),
            f"{attempt.call or 'untagged'} {attempt.path}: {saw(attempt)}",
        )
        for attempt in attempts
    )


def _work_marks(served: Sequence[Served], scale: Scale, lane: int) -> tuple[Mark, ...]:
    return tuple(
        Mark(
            scale(one.ended or one.started),
            _row(one.call, lane),
            shape_of_work(one),
            f"{one.call or 'untagged'} {one.path}: {one.ending}{f' {one.status}' if one.status else ''}",
        )
        for one in served
    )


def _row(call: str, lane: int) -> float:
    """Marks of one moment would hide one another in one line: each call has its own of five."""
    return _top(lane) + 12.0 + 5.0 * (sum(call.encode()) % 5)


def _faults(history: History, shard: int | None, scale: Scale) -> tuple[Span, ...]:
    """The fault windows on a shard; None: those on the router or the clients."""
    windows = [window for window in history.faults if (shard in window.shards if window.shards else shard is None)]
    return tuple(_fault(window, scale) for window in windows)


def _fault(window: FaultWindow, scale: Scale) -> Span:
    began = scale(window.began)
    width = scale(math.inf if window.healed is None else window.healed) - began
    return Span(began, round(max(width, 2.0), 1), window.kind, f"{window.kind}: {window.detail or 'acted'}")


def _states(events: Sequence[Mapping[str, object]], backend: Sequence[str], scale: Scale) -> tuple[Span, ...]:
    """Every stretch in which the router took the shard for something else than healthy."""
    changes = [
        (float(str(event["mono"])), str(event["to"]), str(event.get("why", "")))
        for event in events
        if event.get("event") == "state" and _same(str(event.get("shard")), backend)
    ]
    ends = [began for began, _, _ in changes[1:]] + [math.inf] * bool(changes)
    return tuple(
        Span(scale(began), round(max(scale(end) - scale(began), 1.0), 1), state, f"{state}: {why}")
        for (began, state, why), end in zip(changes, ends, strict=True)
        if state != _HEALTHY
    )


def _same(url: str, backend: Sequence[str]) -> bool:
    return bool(backend) and url.removesuffix("/v1").rstrip("/") == backend[0].removesuffix("/v1").rstrip("/")


def _seconds(scale: Scale) -> tuple[Tick, ...]:
    step = next(step for step in _STEPS if scale.seconds / step <= 10)  # noqa: PLR2004 - as many as have room
    return tuple(
        Tick(scale(scale.zero + number * step), f"{number * step:g}") for number in range(int(scale.seconds / step) + 1)
    )


_STEPS = (*(base * 10**power for power in range(-3, 7) for base in (1, 2, 5)), math.inf)


def _latencies(attempts: Sequence[Attempt], scale: Scale) -> tuple[tuple[Mark, ...], tuple[Tick, ...]]:
    """Each ended attempt at its start, on a logarithmic axis of whole decades; and the decades."""
    ended = [(attempt, max(attempt.ended - attempt.started, 1e-4)) for attempt in attempts if attempt.ended is not None]
    if not ended:
        return (), ()
    low = math.floor(math.log10(min(seconds for _, seconds in ended)))
    high = max(math.ceil(math.log10(max(seconds for _, seconds in ended))), low + 1)

    def height(exponent: float) -> float:
        return round(PLOT - (exponent - low) / (high - low) * PLOT, 1)

    marks = tuple(
        Mark(
            scale(attempt.started),
            height(math.log10(seconds)),
            shape_of_attempt(attempt),
            f"{attempt.call or 'untagged'} {attempt.path}: {saw(attempt)} after {seconds:.3f} s",
        )
        for attempt, seconds in ended
    )
    return marks, tuple(Tick(height(power), f"{10.0**power:g} s") for power in range(low, high + 1))
