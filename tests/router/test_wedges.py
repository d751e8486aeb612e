"""The progress watch at work: whose requests are taken away, and whose are not."""

import asyncio

import orjson
import pytest

T = 1.0
WATCH = {"stall_after_s": T, "backend_timeout_s": 60.0, "probe_timeout_s": 0.1, "probe_interval_s": 0.1}
PAUSED = b'{"is_paused":true}'


def page(tokens=0, kv_usage=0.5, awake=1):
    return (
        b'vllm:num_requests_running{engine="0"} 1.0\n'
        b'vllm:kv_cache_usage_perc{engine="0"} %.3f\n'
        b'vllm:generation_tokens_total{engine="0"} %d.0\n'
        b'vllm:engine_sleep_state{engine="0",sleep_state="awake"} %d.0\n' % (kv_usage, tokens, awake)
    )


@pytest.fixture
def make_engine(kit):
    """Backends with the metrics of an engine, of which each test replaces what it is about."""

    class Engine(kit.Backend):
        """Whatever needs the engine hangs, unless it is told otherwise; the API server answers."""

        def __init__(self, script=kit.hang, *, metrics=page, is_paused=b"", generates=b"", health=True):
            super().__init__(script)
            self.looks = 0
            self.asked = []
            self._answers = {"/metrics": metrics, "/is_paused": is_paused, "/v1/completions": generates}
            self._answers["/health"] = b"{}" if health else b""

        def _is_probe(self, head, body):
            self._path = head.split()[1].decode()
            return self._path in self._answers or super()._is_probe(head, body)

        def _probe_answer(self, head):
            self.asked.append(self._path)
            self.looks += self._path == "/metrics"
            answer = self._answers.get(self._path)
            if answer is None:
                return super()._probe_answer(head)
            body = answer() if callable(answer) else answer
            return kit.answer(200, body) if body else b""  # which is no answer at all

        def change(self, **answers):
            self._answers |= {f"/{path}": answer for path, answer in answers.items()}

    return Engine


def moved(stage, backend):
    """Waits until the backend has lost its requests."""
    return stage.until(lambda: backend.abandoned == len(backend.exchanges) > 0, "its requests are taken away")


async def undisturbed(stage, engine, looks=10):
    """Waits for twice as many looks at the engine as a wedge takes; whether nothing came of them."""
    before = engine.looks
    await stage.until(lambda: engine.looks >= before + looks, "the engine has been looked at often enough")
    return engine.abandoned == 0 and "dead" not in stage.states()


def test_requests_on_a_wedged_shard_are_served_by_another(kit, make_engine, tmp_path):
    log = tmp_path / "events.jsonl"

    async def story():
        async with kit.Stage(make_engine(), kit.serve, event_log=log, **WATCH) as stage:
            replies = await asyncio.gather(*(stage.ask() for _ in range(8)))
            await stage.until(lambda: stage.states()[0] in {"dead", "stale"}, "the wedged shard is ejected")
            later = [(await stage.ask()).status for _ in range(4)]
            wedged, other = stage.router.fleet.shards
            return {reply.status for reply in replies}, later, wedged.drain(), other.drain(), wedged.in_flight

    assert asyncio.run(story()) == ({200}, [200] * 4, (0, 1), (12, 0), 0)
    events = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    assert sum(event["event"] == "wedged" and event["in_flight"] == 4 for event in events) == 1
    assert sum(event["event"] == "attempt" and event["failure"] == "wedged" for event in events) == 4


def test_with_no_other_shard_the_answer_is_that_none_can(kit, make_engine):
    async def story():
        async with kit.Stage(make_engine(), **WATCH) as stage:
            reply = await stage.ask()
            return reply.status, reply.reason, b"no progress" in reply.body

    assert asyncio.run(story()) == (409, "no_shard", True)


def test_a_wedged_shard_comes_back_when_it_generates(kit, make_engine):
    async def story():
        engine = make_engine()
        async with kit.Stage(engine, kit.serve, **WATCH) as stage:
            await asyncio.gather(stage.ask(), stage.ask())
            await stage.until(lambda: stage.states()[0] in {"dead", "stale"}, "the wedged shard is ejected")
            engine.change(**{"v1/completions": kit.completion})
            await stage.until(lambda: stage.states()[0] == "healthy", "it is readmitted")

    asyncio.run(story())


def test_a_stream_under_way_on_a_wedged_shard_ends_in_an_error_event(kit, make_engine):
    begun = kit.say(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        b'f\r\ndata: {"a":1}\n\n\r\n'
    )

    async def begin(exchange):
        await begun(exchange)
        await asyncio.sleep(3600)

    async def story():
        async with kit.Stage(make_engine(begin), **WATCH) as stage:
            reply = await stage.ask()
            return reply.status, reply.body

    status, body = asyncio.run(story())

    assert status == 200
    assert b"stream_cut" in body


@pytest.mark.parametrize("what", ["kv_usage", "tokens"])
def test_long_work_that_moves_any_number_is_left_alone(kit, make_engine, what):
    """A long chunked prefill moves nothing but the cache usage."""
    steps = iter(range(1, 1000))

    async def story():
        engine = make_engine(metrics=lambda: page(**{what: next(steps) / (1000 if what == "kv_usage" else 1)}))
        async with kit.Stage(kit.serve, engine, **WATCH) as stage:
            client = await stage.client()
            client.send()
            return await undisturbed(stage, engine)

    assert asyncio.run(story())


@pytest.mark.parametrize(
    "signs",
    [
        {"is_paused": PAUSED},
        {"metrics": lambda: page(awake=0)},
        {"metrics": lambda: page() + b'vllm:rl_weight_update_operations_in_flight{operation="x"} 1.0\n'},
        {"metrics": b"# log stats are off\n"},
        {"generates": b'{"choices":[]}'},
    ],
    ids=["paused", "asleep", "taking weights", "without numbers", "generating for others"],
)
def test_an_engine_that_need_not_work_is_left_alone(kit, make_engine, signs):
    async def story():
        engine = make_engine(**signs)
        async with kit.Stage(kit.serve, engine, **WATCH) as stage:
            client = await stage.client()
            client.send()
            return await undisturbed(stage, engine)

    assert asyncio.run(story())


def test_a_server_that_stops_answering_altogether_is_taken_for_wedged(kit, make_engine):
    async def story():
        engine = make_engine(metrics=page)
        async with kit.Stage(engine, kit.serve, **WATCH) as stage:
            asking = [asyncio.create_task(stage.ask()) for _ in range(2)]
            await stage.until(lambda: engine.looks > 0, "its numbers have been seen")
            engine.change(metrics=b"", health=b"", is_paused=b"", **{"v1/models": b""})
            return {(await asked).status for asked in asking}

    assert asyncio.run(story()) == {200}


def test_an_announced_pause_suspends_the_watch_until_it_ends(kit, make_engine):
    async def story():
        engine = make_engine()
        async with kit.Stage(engine, kit.serve, **WATCH) as stage:
            stage.router.announce_pause()
            asking = [asyncio.create_task(stage.ask()) for _ in range(2)]
            await stage.until(lambda: len(engine.exchanges) == 1, "the engine has a request")
            await asyncio.sleep(1.5 * T)
            seen = engine.abandoned, stage.states()
            stage.router.announce_resume()
            return seen, {(await asked).status for asked in asking}

    assert asyncio.run(story()) == ((0, ["healthy", "healthy"]), {200})


def test_during_an_announced_pause_unanswered_probes_eject_nobody(kit, make_engine):
    async def story():
        settings = {"probe_interval_s": 0.02, "probe_timeout_s": 0.02, "eject_after": 1}
        engine = make_engine(health=False)
        async with kit.Stage(engine, **settings) as stage:
            stage.router.announce_pause()
            before = len(engine.asked)
            await stage.until(lambda: len(engine.asked) > before + 10, "it has been probed")
            during = stage.states()
            stage.router.announce_resume()
            await stage.until(lambda: stage.states() == ["dead"], "it is ejected")
            return during

    assert asyncio.run(story()) == ["healthy"]


def test_a_deadline_that_passes_in_an_announced_pause_is_no_strike(kit):
    async def story():
        async with kit.Stage(kit.hang, backend_timeout_s=0.2, stall_after_s=0) as stage:
            stage.router.announce_pause()
            during = await stage.ask()
            stage.router.announce_resume()
            strikes = len(stage.router.fleet.shards[0].record.strikes)
            after = await stage.ask()
            return during.reason, strikes, after.reason, len(stage.router.fleet.shards[0].record.strikes)

    assert asyncio.run(story()) == ("out_of_time", 0, "deadline", 1)


def test_under_a_controller_a_wedge_moves_the_requests_and_is_one_failure(kit, make_engine):
    """It is the controller that decides who serves: the shard is only the last choice until then."""

    async def story():
        async with kit.Stage(make_engine(), kit.serve, health="pushed", **WATCH) as stage:
            stage.router.set_serving([backend.url for backend in stage.backends])
            replies = await asyncio.gather(*(stage.ask() for _ in range(4)))
            shards = stage.router.fleet.shards
            return {reply.status for reply in replies}, stage.states(), [shard.drain() for shard in shards]

    assert asyncio.run(story()) == ({200}, ["suspect", "healthy"], [(0, 1), (4, 0)])


def test_a_shard_that_has_left_the_fleet_is_watched_until_its_work_is_done(kit, make_engine):
    async def story():
        engine = make_engine()
        async with kit.Stage(kit.serve, engine, **WATCH) as stage:
            client = await stage.client()
            client.send()
            await stage.until(lambda: len(engine.exchanges) == 1, "the engine has the request")
            stage.router.set_members([stage.backends[0].url])
            return (await client.receive()).status

    assert asyncio.run(story()) == 200


@pytest.mark.parametrize(
    ("settings", "asks", "looks"),
    [({}, False, 1), ({"stall_after_s": 0}, True, 0), ({"health": "off"}, True, 0)],
    ids=["without requests", "with the watch off", "with health off"],
)
def test_nobody_is_watched_without_a_reason(kit, make_engine, settings, asks, looks):
    """One look without a request tells what a silence would mean later."""

    async def story():
        engine = make_engine()
        async with kit.Stage(engine, **WATCH | settings) as stage:
            if asks:
                client = await stage.client()
                client.send()
            await asyncio.sleep(T / 2)
            return engine.looks, engine.abandoned

    assert asyncio.run(story()) == (looks, 0)
