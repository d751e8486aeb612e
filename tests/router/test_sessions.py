"""Sessions through the whole router: they stay, they survive a shard, and they do not go back."""

import asyncio

import orjson

from gymproof.router.kv_scrape import KvScrape, read_sample

FIRST = [{"role": "user", "content": "go"}]
SAID = {"role": "assistant", "content": "ok"}
METRICS = b"""# HELP vllm:kv_cache_usage_perc x
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.7
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1e+03
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 900.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="100"} 1.0
"""


def served(stage):
    return [len(backend.exchanges) for backend in stage.backends]


def chat(*messages):
    return orjson.dumps({"model": "m", "messages": messages})


def test_a_named_session_stays_and_survives_its_shard(kit):
    async def run():
        async with kit.Stage(kit.serve, kit.serve, kit.serve, policy="session") as stage:
            for _ in range(5):
                await stage.ask(b"{}", kit.chat, "POST", "X-Session-ID: r1")
            home = served(stage).index(5)
            backend, port = stage.backends[home], stage.backends[home].port
            await backend.stop()
            stage.router.fleet.condemn(stage.router.fleet.shards[home], "it died")
            replies = [await stage.ask(b"{}", kit.chat, "POST", "X-Session-ID: r1") for _ in range(5)]
            new = [number for number, count in enumerate(served(stage)) if count == 5 and number != home]
            await backend.start(port)
            stage.router.report_refit(backend.url)
            await stage.ask(b"{}", kit.chat, "POST", "X-Session-ID: r1")
            return [reply.status for reply in replies], new, served(stage), home

    statuses, new, counts, home = asyncio.run(run())

    assert statuses == [200] * 5
    assert len(new) == 1
    assert (counts[home], counts[new[0]]) == (5, 6)


def test_a_conversation_without_a_name_stays_too(kit):
    said = orjson.dumps({"choices": [{"message": SAID, "finish_reason": "stop"}], "usage": {"total_tokens": 50}})
    serve = kit.say(kit.answer(200, said))

    async def run():
        async with kit.Stage(serve, serve, serve, serve, policy="session") as stage:
            turns = [chat(*FIRST), chat(*FIRST, SAID, *FIRST), chat(*FIRST, SAID, *FIRST, SAID, *FIRST)]
            for body in turns:
                await stage.ask(body)
                await stage.ask(body, "/tokenize")
                for number in range(3):
                    await stage.ask(chat({"role": "user", "content": f"{number}{len(body)}"}))
            asked = [[exchange.body for exchange in backend.exchanges] for backend in stage.backends]
            return [[body in bodies and bodies.count(body) for body in turns] for bodies in asked], stage.in_flight()

    found, in_flight = asyncio.run(run())

    assert [2, 2, 2] in found
    assert in_flight == 0


def test_the_kv_cache_is_read_and_shown(kit):
    class Backend(kit.Backend):
        def _probe_answer(self, head):
            return kit.answer(200, METRICS) if head.startswith(b"GET /metrics") else super()._probe_answer(head)

    async def run():
        async with kit.Stage(Backend(kit.serve), policy="session") as stage:
            await stage.until(lambda: stage.router.pressure().usage is not None, "the metrics were read")
            client = await stage.client(stage.admin_port)
            ready = await client.ask(b"", "/ready", "GET")
            metrics = await client.ask(b"", "/metrics", "GET")
            return ready.json["kv_cache"], metrics.body

    shown, metrics = asyncio.run(run())

    assert shown["full"] is False
    assert abs(shown["usage"] - 0.6) < 1e-9
    assert b"gym_router_fleet_full 0.0" in metrics
    assert b"gym_router_kv_cache_usage 0.6" in metrics


def test_a_page_of_metrics_is_one_sample_of_all_its_engines():
    sample = read_sample(200, METRICS)

    assert (round(sample.usage, 6), sample.waiting, sample.capacity) == (0.6, 3, 3200)
    assert (sample.queries, sample.hits) == (1000.0, 900.0)
    assert read_sample(200, b"nothing") is None
    assert read_sample(404, METRICS) is None


def test_an_over_full_fleet_is_said_once(kit, caplog):
    async def run():
        async with kit.Stage(kit.serve, policy="session") as stage:
            scrape = KvScrape(stage.router.fleet, lambda _: None, stage.router.journal)
            gauge = stage.router.fleet._policy._gauge
            sample = read_sample(200, METRICS)
            for number in range(60):
                hits = 97.0 * min(number, 30) + 40.0 * max(0, number - 30)
                last, sample = sample, type(sample)(0.9, queries=100.0 * number, hits=hits)
                gauge.note(last, sample)
                gauge.judge([0.9], float(number))
                scrape._say()

    with caplog.at_level("WARNING"):
        asyncio.run(run())

    assert [record.message for record in caplog.records if "over-full" in record.message] == [
        "the fleet's KV caches are over-full: reduce concurrent rollouts"
    ]
