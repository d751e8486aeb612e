import pytest

from gymproof.chaos.sim.scheduler import PrefixCache, Scheduler
from gymproof.chaos.sim.settings import Settings


def scheduler(**settings) -> Scheduler:
    return Scheduler(Settings(port=1, **settings))


def add(engine: Scheduler, request: int, tokens: int = 3, *, prompt: int = 10, stream: bool = False) -> None:
    engine.add(request, list(range(prompt)), tokens, ignore_eos=True, stream=stream)


def run(engine: Scheduler, steps: int = 1000) -> dict[int, tuple[int, str | None]]:
    """Step until nothing is left to do: for each request how many tokens came out, and its end."""
    ends: dict[int, tuple[int, str | None]] = {}
    while engine.busy() and (steps := steps - 1):
        for output in engine.step():
            ends[output.id] = (ends.get(output.id, (0, None))[0] + len(output.tokens), output.finish)
    return ends


def test_requests_progress_together():
    engine = scheduler()
    for request in range(8):
        add(engine, request, 3)

    outputs = [len(engine.step()) for _ in range(3)]

    assert outputs == [0, 0, 8]
    assert not engine.busy()


def test_a_streamed_request_gets_a_token_a_step():
    engine = scheduler()
    add(engine, 1, 3, stream=True)

    outputs = [engine.step()[0] for _ in range(3)]

    assert [(len(output.tokens), output.finish) for output in outputs] == [(1, None), (1, None), (1, "length")]


def test_without_a_token_time_one_step_does_it_all():
    engine = scheduler(token_ms=0)
    add(engine, 1, 2000)

    assert len(engine.step()[0].tokens) == 2000


def test_more_requests_than_places_wait_and_are_counted():
    engine = scheduler(max_num_seqs=2)
    for request in range(5):
        add(engine, request)

    engine.step()

    assert (engine.stats.running, engine.stats.waiting) == (2, 3)
    assert run(engine) == dict.fromkeys(range(5), (3, "length"))
    assert (engine.stats.running, engine.stats.waiting) == (0, 0)


def test_a_full_cache_makes_requests_wait_but_never_a_lone_one():
    engine = scheduler(block_size=10, num_blocks=3)
    for request in range(2):
        add(engine, request, 20)
    add(engine, 2, 200)

    engine.step()

    assert (engine.stats.running, engine.stats.waiting, engine.stats.kv_usage) == (1, 2, 1.0)
    assert set(run(engine)) == {0, 1, 2}
    assert engine.stats.kv_usage == 0.0


def test_a_prefill_that_takes_time_comes_before_the_first_token_and_only_for_what_the_cache_lacks():
    engine = scheduler(prefill_us=10, block_size=4)
    prefilled = []
    for request in (1, 2):
        engine.add(request, list(range(9)), 1, ignore_eos=True, stream=False)
        assert engine.step() == []
        prefilled.append(engine.prefilled)
        assert [output.id for output in engine.step()] == [request]

    assert prefilled == [9, 1]
    assert engine.prefilled == 0


def test_a_dropped_request_frees_its_place_and_counts_as_no_success():
    engine = scheduler()
    add(engine, 1)
    engine.step()

    engine.drop(1)
    engine.drop(1)

    assert (engine.stats.running, engine.stats.kv_usage) == (0, 0.0)
    assert not any(engine.stats.finished.values())


def test_abort_all_ends_everything_with_what_it_has():
    engine = scheduler(max_num_seqs=1)
    add(engine, 1, 10)
    add(engine, 2, 10)
    engine.step()
    engine.step()

    outputs = engine.abort_all()

    assert [(output.id, len(output.tokens), output.finish) for output in outputs] == [(1, 2, "abort"), (2, 0, "abort")]
    assert not engine.busy()


def test_a_pause_by_abort_ends_what_runs_and_holds_what_comes():
    engine = scheduler()
    add(engine, 1)
    engine.step()

    ended = engine.pause("abort")
    add(engine, 2)

    assert [(output.id, output.finish) for output in ended] == [(1, "abort")]
    assert not engine.busy()
    assert engine.stats.waiting == 0  # as vLLM reports it
    engine.resume()
    assert run(engine) == {2: (3, "length")}


def test_a_pause_by_wait_lets_what_runs_finish():
    engine = scheduler()
    add(engine, 1)
    engine.step()

    assert engine.pause("wait") == []
    assert run(engine) == {1: (3, "length")}
    assert engine.idle()


def test_a_pause_by_keep_freezes_what_runs():
    engine = scheduler()
    add(engine, 1)
    engine.step()

    assert engine.pause("keep") == []
    assert not engine.busy()
    assert engine.stats.generation_tokens == 1
    engine.resume()
    assert run(engine) == {1: (3, "length")}


@pytest.mark.parametrize(("block", "length", "hits"), [(128, 624, 512), (32, 504, 480), (128, 128, 0), (128, 129, 128)])
def test_a_repeated_prompt_hits_whole_blocks_but_never_its_last_token(block, length, hits):
    cache = PrefixCache(block, 100)
    prompt = list(range(length))

    assert [cache.look_up(prompt), cache.look_up(prompt)] == [0, hits]


def test_a_block_is_known_by_everything_before_it():
    cache = PrefixCache(2, 100)
    cache.look_up([1, 2, 3, 4, 0])

    assert cache.look_up([9, 9, 3, 4, 0]) == 0
    assert cache.look_up([1, 2, 9, 9, 0]) == 2


def test_the_oldest_blocks_make_room():
    cache = PrefixCache(2, 2)
    cache.look_up([1, 2, 3, 4, 0])
    cache.look_up([5, 6, 0])

    assert cache.look_up([1, 2, 0]) == 0


def test_prompt_and_generation_tokens_are_counted():
    engine = scheduler()
    add(engine, 1, 5, prompt=300)
    run(engine)
    add(engine, 2, 5, prompt=300)
    run(engine)

    assert (engine.stats.prompt_tokens, engine.stats.generation_tokens) == (600, 10)
    assert (engine.stats.prefix_queries, engine.stats.prefix_hits) == (600, 256)
    assert engine.stats.finished["length"] == 2
