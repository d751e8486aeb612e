"""The fleet ledger: what is known of a shard's health, as one transition table. No clock, no socket, no await.

HEALTHY <-> SUSPECT -> DEAD -> RESTARTING -> STALE -> HEALTHY, and RETIRED. A probe that passes never makes a DEAD
shard serve: the engine behind it was restarted and holds old weights, or answers `/health` while it is frozen. What
readmits is a reported refit, or, for fleets whose weights never change, a generation that really ran.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

NEVER = float("-inf")
MAX_STRIKES = 32


class State(Enum):
    """What a shard is to the router. Only HEALTHY and SUSPECT serve, SUSPECT when nothing HEALTHY is left."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    DEAD = "dead"
    RESTARTING = "restarting"
    STALE = "stale"
    RETIRED = "retired"


SERVING = frozenset({State.HEALTHY, State.SUSPECT})


class Event(Enum):
    """What can be learnt of a shard."""

    SERVED = auto()  # live traffic succeeded, and no strike is left
    STRUCK = auto()  # live traffic, or a refused probe, counted against it
    CONDEMNED = auto()  # the strike that was one too many
    ANSWERS = auto()  # /health is well
    GENERATED = auto()  # a real one-token generation of the probe's
    UNTESTABLE = auto()  # /health is well and there is no way to ask for a generation
    SILENT = auto()  # nobody answers the probes of an idle shard
    RESTARTED = auto()  # somebody reports that its processes are being started again
    REFITTED = auto()  # somebody reports that it holds the current weights
    VOUCHED = auto()  # the controller's set contains it
    WITHHELD = auto()  # the controller's set does not
    UNHEARD = auto()  # there is no set: the controller was not heard of in time
    REMOVED = auto()  # no longer a member
    JOINED = auto()  # a member again


CONTROL = frozenset({Event.VOUCHED, Event.WITHHELD, Event.UNHEARD, Event.REMOVED})
# What holds whatever a controller or the rules say about evidence.
UNDENIABLE = frozenset({Event.WITHHELD, Event.REMOVED})


class Readmit(Enum):
    """What brings a DEAD shard back."""

    PROBE = "probe"
    REFIT = "refit"


# A pair that is not here leaves the state as it is.
TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.HEALTHY, Event.STRUCK): State.SUSPECT,
    (State.HEALTHY, Event.CONDEMNED): State.DEAD,
    (State.HEALTHY, Event.SILENT): State.SUSPECT,
    (State.SUSPECT, Event.SERVED): State.HEALTHY,
    (State.SUSPECT, Event.GENERATED): State.HEALTHY,
    (State.SUSPECT, Event.CONDEMNED): State.DEAD,
    (State.SUSPECT, Event.REFITTED): State.HEALTHY,
    (State.SUSPECT, Event.VOUCHED): State.HEALTHY,
    (State.DEAD, Event.ANSWERS): State.STALE,
    (State.DEAD, Event.REFITTED): State.HEALTHY,
    (State.DEAD, Event.VOUCHED): State.HEALTHY,
    (State.RESTARTING, Event.ANSWERS): State.STALE,
    (State.RESTARTING, Event.REFITTED): State.HEALTHY,
    (State.RESTARTING, Event.VOUCHED): State.HEALTHY,
    (State.STALE, Event.UNHEARD): State.SUSPECT,
    (State.DEAD, Event.UNHEARD): State.SUSPECT,
    (State.STALE, Event.SILENT): State.DEAD,
    (State.STALE, Event.REFITTED): State.HEALTHY,
    (State.STALE, Event.VOUCHED): State.HEALTHY,
    (State.RETIRED, Event.JOINED): State.SUSPECT,
    **{(state, Event.RESTARTED): State.RESTARTING for state in State if state is not State.RETIRED},
    **{(state, Event.WITHHELD): State.DEAD for state in SERVING},
    **{(state, Event.REMOVED): State.RETIRED for state in State},
}
READMISSION: Mapping[Readmit, Mapping[tuple[State, Event], State]] = {
    Readmit.REFIT: {},
    Readmit.PROBE: {
        (State.STALE, Event.GENERATED): State.HEALTHY,
        (State.STALE, Event.UNTESTABLE): State.SUSPECT,
    },
}


def next_state(state: State, event: Event, readmit: Readmit) -> State:
    """The state after `event`."""
    pair = (state, event)
    return READMISSION[readmit].get(pair) or TRANSITIONS.get(pair, state)


@dataclass(frozen=True, slots=True)
class Rules:
    """How evidence is weighed."""

    eject_after: int | None = 3  # distinct strikes until DEAD; None: the router itself never ejects
    readmit: Readmit = Readmit.PROBE
    monitored: bool = True  # somebody probes; without that, only live traffic can clear a SUSPECT
    frozen: bool = False  # no evidence changes anything: every member always serves


@dataclass(slots=True)
class Record:
    """One shard's entry. All times are seconds on one monotonic clock, given by the caller."""

    rules: Rules
    state: State = State.HEALTHY
    strikes: list[float] = field(default_factory=list)
    since: float = NEVER  # when the state last changed
    last_strike: float = NEVER
    served_at: float = NEVER  # when a success last ended
    proved_at: float = NEVER  # the latest start of a success
    silent: int = 0  # unanswered probes in a row
    withheld: bool = False  # left out of the controller's set: nothing else brings it back
    trial: bool = False  # a SUSPECT that only live traffic can clear: it gets one request at a time

    @property
    def serving(self) -> bool:
        """Whether the shard may be chosen at all."""
        return self.state in SERVING

    def observe(self, event: Event, now: float) -> None:
        """Apply one event."""
        before = self.state
        if event in CONTROL:
            self.withheld = event is Event.WITHHELD
        if event is Event.ANSWERS and self.state is State.HEALTHY:
            self.silent = 0  # dropped probes count in a row only; a SUSPECT has to generate, not only to answer
        self.state = self._after(event)
        if self.state is State.SUSPECT and (event is Event.UNTESTABLE or not self.rules.monitored):
            self.trial = True
        if self.state is before:
            return
        self.since = now
        self.trial = self.trial and self.state is State.SUSPECT
        if self.state is State.HEALTHY:
            self.strikes.clear()
            self.silent = 0

    def _after(self, event: Event) -> State:
        if self.withheld and event not in UNDENIABLE:
            return self.state
        if self.rules.frozen and event not in UNDENIABLE:
            return State.HEALTHY
        return next_state(self.state, event, self.rules.readmit)

    def served(self, started: float, now: float) -> None:
        """A request sent at `started` succeeded: it forgives only what happened before it was sent."""
        self.served_at = now
        self.silent = 0
        self.proved_at = max(self.proved_at, started)
        if self.state is State.HEALTHY:
            return
        self.strikes = [strike for strike in self.strikes if strike >= started]
        if not self.strikes and started >= self.since:
            self.observe(Event.SERVED, now)

    def failed(self, started: float, now: float, *, fatal: bool = False) -> bool:
        """A request sent at `started` failed by the shard's fault. Whether that is a strike of its own.

        A `fatal` one is as good as all that it takes, where strikes can condemn at all.

        A request that was already under way at the last strike belongs to the same event: one crash that cuts 64
        requests is one strike.
        """
        if started < self.last_strike:
            return False
        self.last_strike = now
        self.strikes = [*self.strikes[-MAX_STRIKES:], now]
        limit = self.rules.eject_after
        condemned = limit is not None and (fatal or len(self.strikes) >= limit)
        self.observe(Event.CONDEMNED if condemned else Event.STRUCK, now)
        return True

    def unanswered(self, started: float, now: float, *, busy: bool) -> None:
        """A probe sent at `started` timed out or was turned down. It says nothing about a shard that is at work."""
        if busy or self.served_at >= started:
            return
        self.silent += 1
        limit = self.rules.eject_after
        if limit is None or self.silent < limit:
            return
        self.observe(Event.CONDEMNED if self.state is State.SUSPECT else Event.SILENT, now)
        self.silent = 0
