"""The report in words and shapes, from histories that were made up."""

import dataclasses

import pytest

from gymproof.chaos.checkers import judge
from gymproof.chaos.checkers.base import Status, Verdict
from gymproof.chaos.history import (
    Attempt,
    Call,
    Delivery,
    Ending,
    FaultWindow,
    History,
    Limits,
    Outcome,
    Rollout,
    Served,
)
from gymproof.chaos.report.drawing import LEFT, MARKS, RIGHT, SHAPES, WIDTH, draw, shape_of_attempt, thinned
from gymproof.chaos.report.evidence import failures
from gymproof.chaos.report.story import story, title

CHAT = "/v1/chat/completions"
URLS = ["http://127.0.0.1:1", "http://127.0.0.1:2"]


@pytest.fixture
def history():
    """Two shards, one of which was killed; one call met it and got a 503."""
    made = History(Limits(shards=2, deadline_s=2.0))
    for record in (
        Rollout("fault-0", "fault", 10.0, 12.0, turns=1, turns_done=1),
        Rollout("fault-1", "fault", 10.0, 13.0, turns=1, turns_done=0),
        Call("fault-0.t0", CHAT, "fault-0", 10.0, 12.0, Outcome.RETURNED),
        Call("fault-1.t0", CHAT, "fault-1", 10.5, 13.0, Outcome.RAISED),
        Attempt("fault-0.t0", CHAT, 10.0, 12.0, Ending.COMPLETE, 200),
        Attempt("fault-1.t0", CHAT, 10.5, 13.0, Ending.COMPLETE, 503, reason="busy"),
        Served(0, "fault-0.t0", CHAT, 10.1, 11.9, Delivery.ANSWERED, 200),
        Served(1, "fault-1.t0", CHAT, 10.6, None, Delivery.RUNNING),
        FaultWindow("kill", "process", (1,), 11.0, 14.0, acted=True, parameters={"process": "group"}),
    ):
        made.add(record)
    return made


def words(history):
    verdicts = judge(history)
    return "\n".join(story(history, verdicts, failures(history, verdicts, 10.0), 10.0))


def test_the_story_tells_what_was_done_what_was_seen_and_the_first_cause(history):
    told = words(history)

    assert "At 1.00 s shard 1 got kill (process group), which was healed at 4.00 s." in told
    assert "The clients saw 200 1 times, 503 1 times." in told
    assert "1 of 2 rollouts were lost: 1 of phase fault." in told
    assert f"First cause: at 3.00 s the call fault-1.t0 {CHAT} got 503 (busy), during kill on shard 1." in told


def test_a_fault_that_was_not_seen_to_act_or_never_healed_is_told_as_such(history):
    history.faults[0] = dataclasses.replace(history.faults[0], healed=None, acted=False)

    assert "which was never healed. It was not seen to act." in words(history)


def test_a_run_without_a_record_or_a_verdict_has_a_story_too(history):
    unknown = {"setup": Verdict(Status.UNKNOWN, "no Toxiproxy")}

    assert story(None, unknown, [], 0.0) == ["Could not be judged: no Toxiproxy"]
    no_record = ["There is no record of what happened."]
    assert story(None, {}, [], 0.0) == no_record
    assert story(None, {"recovers": Verdict(Status.PASS, "it did")}, [], 0.0) == no_record
    assert story(history, {}, [], 10.0)[-1] == "No check has judged it."
    assert (title({}), title(unknown)) == ("incomplete", "could not be told")


def test_a_failed_check_shows_the_attempts_that_it_names_and_how_far_each_got(history):
    found = {failure.check: failure for failure in failures(history, judge(history), 10.0)}

    (step,) = found["gym_safe_statuses"].steps
    assert (step.call, step.number, step.at, step.took) == ("fault-1.t0", 1, 0.5, 2.5)
    assert (step.saw, step.reached) == ("503 (busy)", "shard 1: no end recorded")
    assert [step.call for step in found["no_rollout_lost"].steps] == ["fault-1.t0"]


def test_an_attempt_that_reached_no_shard_says_so(history):
    history.served.clear()

    (failure,) = (f for f in failures(history, judge(history), 10.0) if f.check == "no_rollout_lost")
    assert [step.reached for step in failure.steps] == ["the router, and no shard"]


def test_every_lane_has_its_faults_states_and_marks(history):
    events = [
        {"event": "state", "mono": 11.5, "shard": f"{URLS[1]}/v1", "to": "dead", "why": "unreachable"},
        {"event": "state", "mono": 13.5, "shard": f"{URLS[1]}/v1", "to": "healthy", "why": "probe"},
        {"event": "attempt", "mono": 12.0, "shard": URLS[0]},
    ]
    clients, well, struck = draw(history, events, URLS).lanes

    assert [lane.name for lane in (clients, well, struck)] == ["clients", "shard 0", "shard 1"]
    assert [len(lane.marks) for lane in (clients, well, struck)] == [2, 1, 1]
    assert (well.faults, well.states, clients.faults) == ((), (), ())
    (fault,), (state,) = struck.faults, struck.states
    assert (fault.name, state.name) == ("kill", "dead")
    drawn = WIDTH - LEFT - RIGHT
    assert state.width == pytest.approx(drawn * 2.0 / 4.0, abs=0.2)
    assert fault.x + fault.width == pytest.approx(WIDTH - RIGHT, abs=0.2)


def test_outcomes_differ_by_shape(history):
    attempt = history.attempts[0]
    seen = [
        dataclasses.replace(attempt, status=200),
        dataclasses.replace(attempt, status=409),
        dataclasses.replace(attempt, status=500),
        dataclasses.replace(attempt, ending=Ending.TRUNCATED),
        dataclasses.replace(attempt, ending=Ending.CLIENT_LEFT),
    ]

    assert {shape_of_attempt(one) for one in seen} == SHAPES.keys()


def test_a_crowd_is_thinned_and_what_went_wrong_stays(history):
    good, bad = history.attempts
    crowd = [good] * 10 + [bad] + [dataclasses.replace(good, call=str(number)) for number in range(2 * MARKS)]
    kept, left_out = thinned(crowd, shape_of_attempt)

    assert len(kept) + left_out == len(crowd)
    assert len(kept) <= MARKS
    assert bad in kept


def test_a_history_without_a_single_record_is_drawn_empty():
    drawing = draw(History(Limits(shards=1, deadline_s=1.0)), (), ())

    assert [lane.marks for lane in drawing.lanes] == [(), ()]
    assert drawing.latencies == ()
