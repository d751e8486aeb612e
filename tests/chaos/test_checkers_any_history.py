"""Whatever a run recorded, the checkers give a verdict on it."""

from hypothesis import given
from hypothesis import strategies as st

from gymproof.chaos.checkers import CHECKERS, judge
from gymproof.chaos.checkers.base import Status
from gymproof.chaos.checkers.testing import CHAT, fault, history, recovery, shard_report
from gymproof.chaos.faults.base import Layer
from gymproof.chaos.history import Attempt, Call, Delivery, Ending, History, Outcome, Rollout, Served

times = st.floats(0, 10)
ends = st.none() | times
shards = st.integers(0, 2)
calls = st.sampled_from(["", "r0.t0", "r0.t1", "r1.t0"])
paths = st.sampled_from([CHAT, "/tokenize"])
statuses = st.none() | st.sampled_from([200, 204, 307, 400, 404, 409, 429, 500, 503, 999])
hashes = st.sampled_from(["", "a", "b"])

records = st.one_of(
    st.builds(Attempt, calls, paths, times, ends, st.sampled_from(Ending), statuses, hashes, hashes),
    st.builds(Call, calls, paths, st.just("r0"), times, ends, st.sampled_from(Outcome)),
    st.builds(Served, shards, calls, paths, times, ends, st.sampled_from(Delivery), statuses, hashes, hashes),
    st.builds(
        Rollout, st.just("r0"), st.sampled_from(["baseline", "fault"]), times, ends, st.just(2), st.integers(0, 2)
    ),
    st.builds(shard_report, shards, same_process=st.booleans(), healthy=st.booleans()),
    st.builds(lambda some, recovered: recovery(*some, recovered=recovered), st.sets(shards), ends),
    st.builds(
        lambda some, layer, began, healed, acted: fault(*some, layer=layer, began=began, healed=healed, acted=acted),
        st.sets(shards),
        st.sampled_from(Layer),
        times,
        ends,
        st.booleans(),
    ),
)


@given(recorded=st.lists(records, max_size=12))
def test_no_history_crashes_a_checker(recorded):
    verdicts = judge(history(*recorded))

    assert verdicts.keys() == CHECKERS.keys()
    assert [verdict.why for verdict in verdicts.values() if "crashed" in verdict.why] == []


@given(recorded=st.lists(records, max_size=12))
def test_every_failure_has_evidence(recorded):
    verdicts = judge(history(*recorded))

    assert all(verdict.evidence for verdict in verdicts.values() if verdict.status is Status.FAIL)


@given(recorded=st.lists(records, max_size=12))
def test_a_history_that_was_written_and_read_is_judged_alike(recorded, tmp_path_factory):
    run = history(*recorded)
    file = tmp_path_factory.mktemp("history") / "history.jsonl"
    run.write(file)

    assert judge(History.read(file)) == judge(run)
