"""Two legs of one request: whole pairs, counted as one delivery, and the client's body in the decode leg."""

import pytest

from gymproof.chaos.checkers import body_intact, deliveries_bounded, no_rollout_lost, pairs_whole
from gymproof.chaos.checkers.base import Status
from gymproof.chaos.checkers.testing import attempt, call, fault, history, rollout, served
from gymproof.chaos.history import Delivery, Lease

PASS, FAIL, UNKNOWN = Status.PASS, Status.FAIL, Status.UNKNOWN


def prefill(shard=0, at=0.0, **fields):
    known = {"leg": "prefill", "request_id": "1", "transfer": "t", "lease": Lease.READ, "request_sha256": "for one"}
    return served(shard=shard, at=at, took=0.01, **{**known, "response_sha256": "params", **fields})


def decode(shard=2, at=0.02, **fields):
    return served(shard=shard, at=at, **{"leg": "decode", "request_id": "1", "transfer": "t", **fields})


def pairs(*records, **limits):
    return history(*records, shards=4, prefill=2, **limits)


def test_a_whole_pair_passes():
    assert pairs_whole.check(pairs(attempt(), prefill(), decode())).status is PASS


def test_a_fleet_without_prefill_servers_has_no_pairs():
    assert pairs_whole.check(history(attempt(), served())).status is PASS


def test_a_fleet_whose_prefill_servers_were_never_asked_proves_nothing():
    assert pairs_whole.check(pairs(attempt(), served())).status is UNKNOWN


def test_prefill_servers_without_a_connector_make_no_pairs():
    left_nothing = prefill(lease=Lease.NONE, transfer="")

    assert pairs_whole.check(pairs(attempt(), left_nothing, served(shard=2, at=0.02))).status is PASS


@pytest.mark.parametrize(
    ("legs", "why"),
    [
        ([decode()], "no prefill leg has left anything as 't'"),
        ([prefill(lease=Lease.NONE), decode()], "no prefill leg has left anything as 't'"),
        ([prefill(call="r1.t0"), decode()], "the parameters are those of r1.t0"),
        ([prefill(), decode(request_id="2")], "X-Request-Id '2', '1' on its prefill leg"),
        ([prefill(request_id=""), decode(request_id="")], "X-Request-Id ''"),
        ([prefill(lease=Lease.EXPIRED), decode()], "the lease of 't' had run out"),
        ([prefill(), decode(), decode(3, at=0.2)], "'t' had reached shard 2 before"),
        ([prefill(lease=Lease.PINNED), decode()], "still kept after its decode leg"),
    ],
)
def test_a_broken_pair_is_found(legs, why):
    verdict = pairs_whole.check(pairs(attempt(), *legs))

    assert verdict.status is FAIL
    assert why in verdict.why


def test_a_lease_may_run_out_where_no_decode_server_was_reached_or_the_one_that_was_died():
    died = decode(took=None, ending=Delivery.RUNNING, status=None)

    assert pairs_whole.check(pairs(prefill(lease=Lease.EXPIRED))).status is PASS
    assert pairs_whole.check(pairs(prefill(lease=Lease.PINNED))).status is PASS
    assert pairs_whole.check(pairs(fault(2), prefill(lease=Lease.PINNED), died)).status is PASS


def test_the_clients_body_has_to_be_in_the_decode_leg_only():
    assert body_intact.check(pairs(attempt(), prefill(), decode())).status is PASS
    assert body_intact.check(pairs(attempt(), prefill(), decode(request_sha256="other"))).status is FAIL


def test_the_answer_of_a_prefill_leg_is_no_answer_but_a_refusal():
    run = pairs(attempt(response_sha256="params"), prefill(), decode())
    refused = {"status": 400, "response_sha256": "no"}

    assert body_intact.check(run).status is FAIL
    assert body_intact.check(pairs(attempt(**refused), prefill(**refused))).status is PASS


def test_a_pair_is_one_delivery_and_a_prefill_leg_without_a_decode_leg_is_another():
    again = [prefill(1, at=0.1, transfer="u"), decode(3, at=0.12, transfer="u")]
    thrice = [prefill(0, at=0.2, transfer="v")]

    assert deliveries_bounded.check(pairs(attempt(took=0.3), prefill(), decode(), *again)).status is PASS
    assert deliveries_bounded.check(pairs(attempt(took=0.3), prefill(), decode(), *again, *thrice)).status is FAIL
    assert deliveries_bounded.check(pairs(attempt(took=0.3), prefill(0), prefill(1, at=0.1))).status is PASS


def test_prefill_servers_alone_could_not_have_saved_a_rollout():
    lost = rollout(done=1, at=1.0)

    assert no_rollout_lost.check(pairs(fault(2), fault(3), call(), lost)).status is UNKNOWN
    assert no_rollout_lost.check(pairs(fault(2), call(), lost)).status is FAIL
