"""What `/metrics` has, and by what it moves."""

import re
import time

METRICS = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:num_requests_waiting_by_reason": "gauge",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:engine_sleep_state": "gauge",
    "vllm:prefix_cache_queries_total": "counter",
    "vllm:prefix_cache_hits_total": "counter",
    "vllm:prompt_tokens_total": "counter",
    "vllm:prompt_tokens_cached_total": "counter",
    "vllm:generation_tokens_total": "counter",
    "vllm:num_preemptions_total": "counter",
    "vllm:request_success_total": "counter",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram",
}


def test_metrics_have_the_names_and_labels_that_a_watch_reads(play):
    async def story(stand):
        await stand.chat()
        page = (await stand.get("/metrics"))[1].decode()
        types = dict(re.findall(r"^# TYPE (vllm:\S+) (\w+)$", page, re.MULTILINE))
        assert {name: types.get(name) for name in METRICS} == METRICS
        for name, kind in METRICS.items():
            series = name + ("_bucket" if kind == "histogram" else "")
            labels = re.findall(rf"^{series}\{{(.*?)\}} ", page, re.MULTILINE)
            assert labels, series
            assert all({'engine="0"', 'model_name="tiny"'} <= set(found.split(",")) for found in labels), series
        assert set(re.findall(r'waiting_by_reason\{.*?reason="(\w+)"', page)) == {"capacity", "deferred"}
        assert set(re.findall(r'sleep_state="(\w+)"', page)) == {"awake", "weights_offloaded", "discard_all"}

    play(story)


def test_counters_of_tokens_move_by_what_was_asked_and_given(play):
    async def story(stand):
        names = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:prefix_cache_queries_total")
        before = [await stand.metric(name) for name in names]
        _, answer = await stand.chat("a prompt that nobody else has", tokens=7)
        prompt = answer["usage"]["prompt_tokens"]
        after = [await stand.metric(name) for name in names]
        assert [new - old for old, new in zip(before, after, strict=True)] == [7, prompt, prompt]

    play(story)


def test_a_repeated_prompt_hits_the_prefix_cache_in_whole_blocks(play):
    async def story(stand):
        text = f"{time.monotonic()} " + "so it is " * 200
        name, hits = "vllm:prefix_cache_hits_total", []
        for _ in range(3):
            before = await stand.metric(name)
            _, answer = await stand.chat(text, tokens=1)
            hits.append(await stand.metric(name) - before)
        blocks = (answer["usage"]["prompt_tokens"] - 1) // 128 * 128
        assert hits == [0, blocks, blocks]
        assert blocks > 0
        assert answer["usage"]["prompt_tokens_details"] is None

    play(story)
