"""What every policy keeps to, what each of the others chooses, and when a fleet is called over-full."""

import pytest

from gymproof.router.policies import POLICIES, Sample, Turn
from gymproof.router.policies.pressure import MEMORY, WINDOW, PressureGauge


@pytest.mark.parametrize("policy", ["session", "least_outstanding", "round_robin"])
def test_requests_without_a_key_spread_within_a_tenth(new_desk, policy):
    desk = new_desk(16, policy)
    for _ in range(1600):
        desk.send()

    assert all(90 <= shard.in_flight <= 110 for shard in desk.shards)


@pytest.mark.parametrize("policy", ["session", "consistent_hash"])
def test_the_order_of_the_urls_does_not_matter(new_desk, policy):
    one, other = new_desk(20, policy), new_desk(20, policy, backwards=True)

    for number in range(100):
        assert one.send(b"%d" % number).shard.url == other.send(b"%d" % number).shard.url


@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_tried_is_not_chosen_and_nothing_is_chosen_from_nobody(new_desk, policy):
    desk = new_desk(3, policy)

    assert desk.send(b"s", tried=desk.shards[:2]).shard is desk.shards[2]
    assert desk.policy.choose(Turn((b"s",)), 0.0, desk.shards) is None


def test_the_least_loaded_is_chosen(new_desk):
    desk = new_desk(3, "least_outstanding")
    desk.shards[0].in_flight, desk.shards[2].in_flight = 2, 3

    assert desk.send().shard is desk.shards[1]


def test_two_draws_avoid_the_busy(new_desk):
    desk = new_desk(2, "power_of_two")
    desk.shards[0].in_flight = 1000
    for _ in range(100):
        desk.send()

    assert desk.shards[1].in_flight > 60


def test_hashed_sessions_spread(new_desk):
    desk = new_desk(16, "consistent_hash")
    for number in range(16_000):
        desk.send(b"%d" % number)

    assert all(800 <= shard.in_flight <= 1200 for shard in desk.shards)


def test_a_hashed_session_returns_with_its_shard(new_desk):
    desk = new_desk(4, "consistent_hash")
    home = desk.turn(b"s")
    desk.serving(*(shard for shard in desk.shards if shard is not home))
    assert desk.turn(b"s") is not home
    desk.serving(*desk.shards)

    assert desk.turn(b"s") is home


def test_only_a_lost_shards_hashed_sessions_move_and_a_joining_one_takes_only_its_own(new_desk):
    desk, joining = new_desk(8, "consistent_hash"), new_desk(9).shards[-1]
    keys = [b"%d" % number for number in range(300)]
    homes = {key: desk.turn(key) for key in keys}
    lost, *kept = desk.shards

    desk.serving(*kept)
    assert all((desk.turn(key) is home) is (home is not lost) for key, home in homes.items())
    desk.serving(*desk.shards, joining)
    assert {desk.turn(key) for key in keys if desk.turn(key) is not homes[key]} == {joining}


# An over-full fleet


def test_full_caches_that_hit_ever_less_are_called_over_full():
    gauge, queries, hits, sample = PressureGauge(), 0.0, 0.0, None
    for number in range(3 * WINDOW):
        queries += 100
        hits += 97 if number < 2 * WINDOW else 40
        last, sample = sample, Sample(0.9, queries=queries, hits=hits)
        gauge.note(last, sample)
        gauge.judge([0.9], 5.0 * number)
        assert gauge.now.full is (number >= 2 * WINDOW + 1)


def test_work_that_can_hit_less_is_not_called_over_full_for_ever():
    gauge, hits, sample = PressureGauge(), 0.0, None
    for number in range(3 * WINDOW + MEMORY):
        hits += 97 if number < 2 * WINDOW else 87
        last, sample = sample, Sample(0.9, queries=100.0 * number, hits=hits)
        gauge.note(last, sample)
        gauge.judge([0.9], 5.0 * number)
        assert gauge.now.full or number != 3 * WINDOW

    assert not gauge.now.full
