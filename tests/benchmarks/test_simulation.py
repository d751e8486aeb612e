"""The simulated fleet: Little's law, the calibration, and the same seed gives the same run."""

from dataclasses import replace
from statistics import mean

import pytest
from fleets.document import DOCUMENT, read
from fleets.experiments import EXPERIMENTS, runs
from fleets.parameters import ENGINE, WORKLOAD, EngineModel, Workload, engine_model, workload
from fleets.results import result
from fleets.routing import make_router
from fleets.simulation import Experiment, Outage, Simulation

SHAPE = replace(EXPERIMENTS["document"], end=700.0, warm_up=200.0)
SMALL = Experiment(3, engine_model("spiral"), workload("spiral", rollouts=60), end=300.0, warm_up=100.0)


def simulate(experiment=SMALL, policy="least_outstanding", seed=1):
    return Simulation(experiment, make_router(policy, experiment.engines, seed), seed).run()


def test_the_same_seed_gives_the_same_run_and_another_one_does_not():
    first, again, other = (result(SMALL, simulate(seed=s), name="small", policy="p", seed=0) for s in (1, 1, 2))

    assert first == again
    assert first != other


def test_littles_law_holds():
    """Requests in flight are their rate times their latency, up to those that the window cuts."""
    tally = simulate(SHAPE, "pinned_replicas")

    assert tally.in_flight_s / 500 == pytest.approx(tally.requests / 500 * mean(tally.e2e), rel=0.02)


def test_the_loop_is_closed():
    """Rollouts are either in flight or away: N = X (R + Z), the identity that the document is read by."""
    tally = simulate(SHAPE, "pinned_replicas")
    turn = mean(tally.e2e) + SHAPE.workload.away_mean

    assert tally.requests / 500 * turn == pytest.approx(SHAPE.workload.rollouts, rel=0.03)


def test_the_baseline_is_what_the_document_published():
    """Fitted to it: throughput, TTFT, TPOT, hit rate; not fitted: running requests and end-to-end latency."""
    tally = simulate(SHAPE, "pinned_replicas")
    column = result(SHAPE, tally, name="document", policy="pinned_replicas", seed=1).column
    published = DOCUMENT["baseline"]

    for name, within in [
        ("tokens_per_s", 0.06),
        ("requests_per_s", 0.06),
        ("hit_rate", 0.003),
        ("ttft_s", 0.05),
        ("tpot_s", 0.05),
        ("running", 0.05),
        ("e2e_s", 0.08),
    ]:
        assert getattr(column, name) == pytest.approx(getattr(published, name), rel=within), name


def test_the_documents_gain_is_time_outside_the_engines():
    found = read()

    assert found.gain == pytest.approx(0.166, abs=0.001)
    assert found.outside_before_s == pytest.approx(13.8, abs=0.05)
    assert found.outside_after_s == pytest.approx(9.7, abs=0.05)
    assert found.gain_at_old_outside < 0 < found.gain < found.gain_of_outside_alone


def test_turns_in_flight_on_an_engine_that_dies_are_sent_again():
    tally = simulate(replace(SMALL, outage=Outage(shard=1, down_at=150.0, up_at=200.0)))

    assert tally.repeats > 0
    assert tally.in_flight <= SMALL.workload.rollouts


def test_every_parameter_has_a_row_with_its_origin():
    assert set(ENGINE) == set(EngineModel.__dataclass_fields__)
    assert set(WORKLOAD) == set(Workload.__dataclass_fields__)
    assert all(row.origin for table in (ENGINE, WORKLOAD) for row in table.values())


def test_an_unknown_experiment_or_policy_is_named_with_those_that_are_known():
    with pytest.raises(ValueError, match="unknown 'spiral'; known: document"):
        runs(["spiral"], ["round_robin"], [1])
    with pytest.raises(ValueError, match=r"unknown 'best'; known: .*round_robin"):
        runs(["document"], ["best"], [1])
