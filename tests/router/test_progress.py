"""Telling a wedged engine from one at work, by successive looks at its metrics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymproof.router.progress import Judgement, Look, Sight, Stillness, judge_stillness, read_metrics

T = 10.0
PAGE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 1.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="weights_offloaded"} 0.0
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 624.0
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 600.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 17.0
vllm:iteration_tokens_total_count{engine="0",model_name="tiny"} 30.0
vllm:generation_tokens_created{engine="0",model_name="tiny"} 1.7e+09
vllm:rl_weight_update_operations_in_flight{operation="update_weights"} 0.0
http_requests_total{handler="/metrics"} 9.0
"""


def page(*changes):
    text = PAGE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return read_metrics(200, text.encode())


STILL = page()
SILENCE = Look(Sight.SILENCE)
NOTHING = Look(Sight.NOTHING)


def looked_at(*looks, start=Stillness(), heard_at=float("-inf"), delays=0):  # noqa: B008  a frozen value
    """What is known after `looks`, one second apart."""
    still = start
    for look in looks:
        still = still.after(look, at=still.at + 1.0, delays=delays, heard_at=heard_at)
    return still


@pytest.mark.parametrize(
    "change",
    [
        ('tiny"} 17.0', 'tiny"} 18.0'),
        ('tiny"} 30.0', 'tiny"} 31.0'),
        ('tiny"} 600.0', 'tiny"} 700.0'),
        ('tiny"} 624.0', 'tiny"} 700.0'),
        ('tiny"} 0.25', 'tiny"} 0.2500001'),
        ('running{engine="0",model_name="tiny"} 1.0', 'running{engine="0",model_name="tiny"} 2.0'),
        ('waiting{engine="0",model_name="tiny"} 0.0', 'waiting{engine="0",model_name="tiny"} 1.0'),
    ],
)
def test_any_number_that_an_engine_moves_is_progress(change):
    assert looked_at(*[STILL] * 9, page(change)).still_s == 0.0


@pytest.mark.parametrize("change", [("} 9.0", "} 10.0"), ("1.7e+09", "1.8e+09"), ("Number of", "The number of")])
def test_what_the_api_server_moves_by_itself_is_none(change):
    assert looked_at(*[STILL] * 9, page(change)).still_s == 9.0


@pytest.mark.parametrize(
    "change",
    [
        ('"awake"} 1.0', '"awake"} 0.0'),
        ('"awake"} 1.0', '"awake"} 0'),
        ('"update_weights"} 0.0', '"update_weights"} 1.0'),
        ('"update_weights"} 0.0', '"update_weights"} 10'),
    ],
)
def test_an_engine_that_sleeps_or_takes_weights_need_not_work(change):
    assert page(change).sight is Sight.RESTING
    assert looked_at(*[STILL] * 9, page(change)).still_s == 0.0


def test_numbers_are_read_without_labels_and_on_the_first_line_too():
    assert read_metrics(200, b"vllm:num_requests_running 1") == Look(Sight.NUMBERS, b"\nvllm:num_requests_running 1")


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, PAGE.encode()), (500, b""), (200, b""), (200, b"<html>"), (200, b"sglang:num_running_reqs 1\n")],
)
def test_an_answer_without_the_engines_numbers_tells_nothing(status, body):
    assert read_metrics(status, body) == NOTHING


@pytest.mark.parametrize("look", [SILENCE, NOTHING])
def test_a_shard_that_never_showed_numbers_is_never_held_to_them(look):
    assert looked_at(*[look] * 100).still_s == 0.0


def test_numbers_that_are_gone_are_not_held_against_the_shard():
    assert looked_at(STILL, STILL, NOTHING, *[SILENCE] * 50).still_s == 0.0


def test_silence_counts_where_there_were_numbers():
    assert looked_at(STILL, *[SILENCE] * 6).still_s == 6.0


def test_silence_of_a_shard_that_answers_requests_does_not_count():
    busy = looked_at(STILL, *[SILENCE] * 6)

    assert looked_at(SILENCE, start=busy, heard_at=busy.at + 0.5).still_s == 0.0
    assert looked_at(SILENCE, start=busy, heard_at=busy.at - 0.5).still_s == 7.0


def test_answers_that_need_no_engine_do_not_count_against_its_numbers():
    assert looked_at(*[STILL] * 9, heard_at=1e9).still_s == 8.0


def test_an_interval_in_which_the_looker_was_held_up_counts_for_nothing():
    before = looked_at(STILL, STILL)
    held_up = before.after(STILL, at=before.at + 1000.0, delays=1, heard_at=0.0)

    assert held_up.still_s == before.still_s
    assert looked_at(STILL, start=held_up, delays=1).still_s == before.still_s + 1.0


def test_time_without_requests_does_not_count():
    idle = looked_at(*[STILL] * 9).broken(500.0, 0)

    assert looked_at(STILL, start=idle).still_s == 1.0


@pytest.mark.parametrize(
    ("still_s", "asked", "judgement"),
    [
        (0.0, False, Judgement.FINE),
        (T / 2, False, Judgement.DOUBTFUL),
        (T * 9, False, Judgement.DOUBTFUL),
        (T / 2, True, Judgement.FINE),
        (T, True, Judgement.WEDGED),
    ],
)
def test_no_engine_is_called_wedged_that_was_not_asked(still_s, asked, judgement):
    assert judge_stillness(Stillness(still_s=still_s, asked=asked), T) is judgement


STEPS = st.tuples(
    st.one_of(
        st.sampled_from([SILENCE, NOTHING, Look(Sight.RESTING)]),
        st.sampled_from([STILL, page(("17.0", "18.0"))]),
    ),
    st.floats(0.1, 3.0),  # seconds since the last look
    st.booleans(),  # whether the looker was held up
)


@given(st.lists(STEPS, max_size=60))
def test_whatever_is_seen_a_wedge_is_as_long_as_that_without_a_sign_of_work(steps):
    """Undelayed time since the last movement is the most that may ever be counted."""
    still, unmoved_s, delays = Stillness(), 0.0, 0
    last = before = None
    for look, elapsed_s, held_up in steps:
        delays += held_up
        still = still.after(look, at=still.at + elapsed_s, delays=delays, heard_at=float("-inf"))
        if look.sight in {Sight.NOTHING, Sight.RESTING}:
            last = None
        known = last is not None
        last = look if look.sight is Sight.NUMBERS else last
        moved = not known or (look.sight is Sight.NUMBERS and look != before)
        before = last
        unmoved_s = 0.0 if moved else unmoved_s + (0.0 if held_up else elapsed_s)

        assert still.still_s == pytest.approx(unmoved_s)
        assert judge_stillness(still, T) is not Judgement.WEDGED


@given(st.lists(st.floats(0.01, 4.9), min_size=1, max_size=40), st.integers(1, 8))
def test_an_engine_that_moves_often_enough_is_not_even_doubted(gaps_s, looks_between):
    """Whenever a number moves within half of the time, at whatever pace it is looked at."""
    still = Stillness()
    for number, gap_s in enumerate(gaps_s):
        look = page(("} 17.0", f"}} {number}.0"))
        for _ in range(looks_between):
            still = still.after(look, at=still.at + gap_s / looks_between, delays=0, heard_at=0.0)
            assert judge_stillness(still, T) is Judgement.FINE
