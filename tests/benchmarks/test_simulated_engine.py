"""The simulated engine: tokens are conserved, and the cache behaves like vLLM's."""

from random import Random

from fleets.engine import Engine, Request, Segment
from fleets.kv_cache import KvCache, Prefix
from fleets.parameters import EngineModel
from hypothesis import given, settings
from hypothesis import strategies as st

MODEL = EngineModel(
    kv_tokens=4000,
    hit_tokens=16,
    max_num_seqs=4,
    step_tokens=512,
    base_s=0.01,
    per_seq_s=0.001,
    per_context_s=1e-6,
    per_prefill_s=1e-5,
    per_prefix=1e-5,
    server_s=0.0,
)


def run(engine: Engine) -> tuple[list[Request], float]:
    """Until nothing is left; the requests in the order of finishing, and the seconds that it took."""
    done: list[Request] = []
    now = 0.0
    while segment := engine.plan(now):
        now += segment.seconds
        done += engine.finish(segment, now)
    return done, now


def request(rollout: int, prompt: int, answer: int, group: int = -1, shared: int = 100) -> Request:
    return Request(Prefix(rollout, group, shared), prompt, answer)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(100, 1500), st.integers(1, 300)), min_size=1, max_size=20))
def test_every_request_ends_with_its_tokens_and_every_token_of_the_cache_is_accounted_for(work):
    engine = Engine(MODEL)
    now = 0.0
    engine.waiting.extend(request(number, prompt, answer, -1 - number % 2) for number, prompt, answer in work)
    done: list[Request] = []
    while segment := engine.plan(now):
        assert engine.cache.used + engine.cache.cached <= MODEL.kv_tokens
        shared = {one.prefix.group for one in engine.running}
        assert engine.cache.used == sum(one.context - 100 for one in engine.running) + 100 * len(shared)
        now += segment.seconds
        done += engine.finish(segment, now)

    assert sorted((one.prompt, one.answer) for one in done) == sorted((prompt, answer) for _, prompt, answer in work)
    assert all(one.context == one.prompt + one.answer and one.rest == 0 for one in done)
    assert engine.cache.used == 0


def test_a_turn_hits_all_but_what_is_new():
    engine = Engine(MODEL)
    engine.waiting.append(request(0, 160, 33))
    run(engine)
    engine.waiting.append(request(0, 400, 1))
    (second,), _ = run(engine)

    assert second.hit == 192  # 160 + 33 less the last token, which nobody computed, in whole blocks of 16
    assert (engine.prefix_hits, engine.prefix_queries) == (192, 560)


def test_siblings_share_only_the_first_turn():
    engine = Engine(MODEL)
    engine.waiting.append(request(0, 100, 20))
    run(engine)
    engine.waiting.append(request(1, 300, 1))
    (sibling,), _ = run(engine)

    assert sibling.hit == 96


def test_the_oldest_prefix_is_evicted_first_and_from_its_end():
    cache = KvCache(1000, 1)
    for number in (1, 2):
        prefix = Prefix(number, -number, 100)
        cache.hold(prefix, 400)
        cache.release(prefix, 400, 400)
    cache.hold(Prefix(3, -3, 100), 300)

    assert cache.cached == 700
    assert cache.hit(Prefix(1, -1, 100), 401) == 300
    assert cache.hit(Prefix(2, -2, 100), 401) == 400


def test_decoding_that_needs_room_preempts_the_youngest_which_is_computed_again():
    engine = Engine(MODEL)
    engine.waiting.extend([request(0, 1900, 300), request(1, 1900, 300, -2)])
    done, _ = run(engine)

    assert [one.prefix.rollout for one in done] == [0, 1]
    assert engine.preemptions == 1
    assert engine.recomputed > 0


def test_a_segment_is_cut_at_the_end_of_the_step_that_runs():
    assert Segment(10, 0.5).cut(1.2) == Segment(3, 0.5)
    assert Segment(10, 0.5).cut(0.0) == Segment(1, 0.5)
    assert Segment(2, 0.5).cut(9.0) == Segment(2, 0.5)


def test_cutting_a_segment_changes_no_token():
    draws = Random(1)
    whole, pieces = Engine(MODEL), Engine(MODEL)
    for engine in (whole, pieces):
        engine.waiting.append(request(0, 200, 250))
    run(whole)
    now = 0.0
    while segment := pieces.plan(now):
        part = segment.cut(draws.random() * segment.seconds)
        now += part.seconds
        pieces.finish(part, now)

    assert whole.cache.cached == pieces.cache.cached == 449
