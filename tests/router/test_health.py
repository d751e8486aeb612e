"""The fleet ledger: single rules first, then any sequence of events."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gymproof.router.health import (
    READMISSION,
    SERVING,
    TRANSITIONS,
    Event,
    Readmit,
    Record,
    Rules,
    State,
    next_state,
)

PROBE_EVENTS = [Event.ANSWERS, Event.GENERATED, Event.UNTESTABLE]


def record(**rules):
    return Record(Rules(**rules))


def test_the_table_speaks_only_of_known_states_and_events():
    rows = [*TRANSITIONS, *(pair for rows in READMISSION.values() for pair in rows)]

    assert all(isinstance(state, State) and isinstance(event, Event) for state, event in rows)
    assert set(READMISSION) == set(Readmit)
    assert {event for _, event in rows} == set(Event)


def test_every_state_can_be_entered_and_left():
    moves = {(before, after) for (before, _), after in TRANSITIONS.items() if before is not after}

    assert {after for _, after in moves} == set(State)
    assert {before for before, _ in moves} == set(State)


@pytest.mark.parametrize("state", [State.DEAD, State.RESTARTING, State.STALE])
@pytest.mark.parametrize("event", [*PROBE_EVENTS, Event.SERVED, Event.STRUCK, Event.SILENT])
def test_with_readmission_by_refit_nothing_else_makes_a_shard_serve_again(state, event):
    assert next_state(state, event, Readmit.REFIT) not in SERVING


def test_a_dead_shard_needs_health_and_a_generation():
    dead = Record(Rules(readmit=Readmit.PROBE), State.DEAD)
    dead.observe(Event.GENERATED, 1.0)

    assert dead.state is State.DEAD
    dead.observe(Event.ANSWERS, 2.0)
    assert dead.state is State.STALE
    dead.observe(Event.GENERATED, 3.0)
    assert dead.state is State.HEALTHY


def test_a_crash_that_cuts_64_requests_is_one_strike():
    shard = record(eject_after=2)

    strikes = [shard.failed(started=float(n), now=100.0 + n / 1000) for n in range(64)]

    assert sum(strikes) == 1
    assert shard.state is State.SUSPECT


def test_distinct_strikes_eject():
    shard = record(eject_after=3)
    for t in (1.0, 2.0, 3.0):
        assert shard.failed(started=t, now=t + 0.5)

    assert shard.state is State.DEAD


def test_rare_failures_between_successes_never_add_up():
    shard = record(eject_after=3)
    for t in range(0, 100, 5):
        shard.failed(started=t, now=t + 1)
        shard.served(started=t + 2, now=t + 3)

    assert shard.state is State.HEALTHY
    assert not shard.strikes


def test_a_late_success_that_was_sent_before_the_failure_forgives_nothing():
    shard = record(eject_after=3)
    shard.failed(started=5.0, now=6.0)
    shard.served(started=4.0, now=7.0)

    assert shard.state is State.SUSPECT
    assert len(shard.strikes) == 1


def test_a_slow_probe_condemns_no_shard_that_is_at_work():
    shard = record(eject_after=1)
    shard.unanswered(started=1.0, now=3.0, busy=True)
    shard.served(started=0.0, now=4.0)
    shard.unanswered(started=3.5, now=5.5, busy=False)  # a success ended meanwhile

    assert shard.state is State.HEALTHY


def test_an_idle_shard_whose_probes_go_unanswered_is_ejected_in_two_steps():
    shard = record(eject_after=2)
    states = []
    for t in range(4):
        shard.unanswered(started=float(t), now=t + 0.5, busy=False)
        states.append(shard.state)

    assert states == [State.HEALTHY, State.SUSPECT, State.SUSPECT, State.DEAD]


def test_under_a_controller_the_router_never_ejects():
    shard = record(eject_after=None, monitored=False)
    for t in range(100):
        shard.failed(started=float(t), now=t + 0.5)

    assert shard.state is State.SUSPECT
    assert shard.trial
    assert len(shard.strikes) < 100
    shard.observe(Event.VOUCHED, 200.0)
    assert shard.state is State.HEALTHY
    assert not shard.trial


def test_without_health_every_member_serves_whatever_happens():
    shard = record(frozen=True, eject_after=None)
    for t in range(10):
        shard.failed(started=float(t), now=t + 0.5)

    assert shard.state is State.HEALTHY
    shard.observe(Event.REMOVED, 20.0)
    assert shard.state is State.RETIRED
    shard.observe(Event.JOINED, 21.0)
    assert shard.state is State.HEALTHY


def test_what_a_controller_withholds_comes_back_by_the_controller_only():
    shard = record()
    shard.observe(Event.WITHHELD, 1.0)
    for event in (*PROBE_EVENTS, Event.REFITTED, *PROBE_EVENTS):
        shard.observe(event, 2.0)

    assert not shard.serving
    shard.observe(Event.VOUCHED, 3.0)
    assert shard.state is State.HEALTHY


def test_who_was_withheld_and_removed_may_join_again():
    shard = record()
    for event in (Event.WITHHELD, Event.REMOVED, Event.JOINED):
        shard.observe(event, 1.0)

    assert shard.state is State.SUSPECT


class Ledger(RuleBasedStateMachine):
    """Any sequence of evidence, on a clock that only goes forward."""

    @initialize(readmit=st.sampled_from(Readmit), eject_after=st.integers(1, 4))
    def begin(self, readmit, eject_after):
        self.now = 0.0
        self.readmit = readmit
        self.record = Record(Rules(eject_after=eject_after, readmit=readmit))
        self.died_at = None
        self.refitted = False

    def tick(self):
        self.now += 1.0
        return self.now

    def after(self, before):
        """What holds of every step."""
        state = self.record.state
        if before in SERVING and state not in SERVING:
            self.refitted = False
        if before not in SERVING and state in SERVING and self.readmit is Readmit.REFIT:
            assert self.refitted or before is State.RETIRED

    @rule(age=st.floats(0, 50))
    def a_request_fails(self, age):
        before, last, count = self.record.state, self.record.last_strike, len(self.record.strikes)
        now = self.tick()
        counted = self.record.failed(now - age, now)

        assert counted == (now - age >= last)
        assert counted or (len(self.record.strikes) == count and self.record.state is before)
        self.after(before)

    @rule(age=st.floats(0, 50))
    def a_request_succeeds(self, age):
        before, strikes = self.record.state, list(self.record.strikes)
        now = self.tick()
        self.record.served(now - age, now)
        kept = [strike for strike in strikes if strike >= now - age]

        assert before is State.HEALTHY or set(kept) <= set(self.record.strikes)
        assert before in SERVING or self.record.state is before
        self.after(before)

    @rule(busy=st.booleans())
    def a_probe_goes_unanswered(self, busy):
        before = self.record.state
        now = self.tick()
        self.record.unanswered(now - 0.5, now, busy=busy)

        assert not busy or self.record.state is before
        self.after(before)

    @rule(event=st.sampled_from(PROBE_EVENTS))
    def a_probe_finds_something(self, event):
        before = self.record.state
        self.record.observe(event, self.tick())

        assert before is not State.DEAD or self.record.state in {State.DEAD, State.STALE}
        self.after(before)

    @rule()
    def its_processes_are_restarted(self):
        before = self.record.state
        self.record.observe(Event.RESTARTED, self.tick())

        assert self.record.state in {State.RESTARTING, State.RETIRED}
        self.after(before)

    @rule()
    def a_refit_is_reported(self):
        before = self.record.state
        self.refitted = True
        self.record.observe(Event.REFITTED, self.tick())

        assert before is State.RETIRED or self.record.state is State.HEALTHY
        self.after(before)

    @rule()
    def it_leaves_the_fleet(self):
        self.record.observe(Event.REMOVED, self.tick())

        assert self.record.state is State.RETIRED

    @precondition(lambda self: self.record.state is State.RETIRED)
    @rule()
    def it_comes_back(self):
        self.record.observe(Event.JOINED, self.tick())

        assert self.record.state is State.SUSPECT  # unproven

    @invariant()
    def a_healthy_shard_has_fewer_strikes_than_it_takes_to_eject(self):
        if hasattr(self, "record") and self.record.state is State.HEALTHY:
            assert len(self.record.strikes) == 0

    @invariant()
    def only_a_suspect_is_on_trial(self):
        if hasattr(self, "record"):
            assert not self.record.trial or self.record.state is State.SUSPECT


Ledger.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestLedger = Ledger.TestCase


def test_probes_that_drop_now_and_then_add_up_to_nothing():
    record = Record(Rules(eject_after=3))
    for day in range(10):
        record.unanswered(started=day, now=day + 0.1, busy=False)
        record.observe(Event.ANSWERS, now=day + 0.2)

    assert record.state is State.HEALTHY
