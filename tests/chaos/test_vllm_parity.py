"""What the simulated vLLM is held to: each test is a fact about a shard, and runs against both kinds.

Those of the real one need an interpreter that has vLLM (`gymproof.chaos.vllm.install` says where it is looked for).
"""

import asyncio
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest

from gymproof.chaos.fleet import LocalFleet, LocalShard, SimFleet
from gymproof.chaos.history import Delivery
from gymproof.chaos.portal import Portal
from gymproof.chaos.vllm.fleet import VllmFleet
from gymproof.chaos.vllm.install import VllmUnavailableError, find_vllm
from gymproof.chaos.waiting import wait_until

WITHIN_S = 30.0
SOON_S = 3.0
CHAT, TEXT, TOKENIZE = "/v1/chat/completions", "/v1/completions", "/tokenize"
ENGINE_DEAD = {
    "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "type": "InternalServerError",
    "param": None,
    "code": 500,
}
pytestmark = pytest.mark.timeout(300)


def make_fleet(kind: str, folder) -> LocalFleet:
    if kind == "sim":
        return SimFleet(1, folder=folder)
    try:
        return VllmFleet(1, folder=folder, vllm=find_vllm())
    except VllmUnavailableError as error:
        pytest.skip(str(error).partition("\n")[0])


@pytest.fixture(scope="module", params=["sim", pytest.param("vllm", marks=pytest.mark.vllm)])
def stand(request, tmp_path_factory):
    """A shard of one kind, and a loop that it lives on."""
    fleet = make_fleet(request.param, tmp_path_factory.mktemp(request.param))
    with Portal() as portal, portal.inside(fleet):
        yield portal, fleet.shards[0]


@dataclass
class Stand:
    """A shard that serves, and a client session with it."""

    shard: LocalShard
    session: aiohttp.ClientSession

    async def get(self, path: str) -> tuple[int, bytes]:
        async with self.session.get(path) as response:
            return response.status, await response.read()

    async def post(self, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        async with self.session.post(path, json=body, **options) as response:
            return response.status, orjson.loads(await response.read())

    async def chat(self, *text: str, **fields: Any) -> tuple[int, Any]:
        return await self.post(CHAT, chat(*text, **fields))

    async def stream(self, path: str = CHAT, **fields: Any) -> list[Any]:
        """The events of a streamed answer that has ended as it should, parsed but for "[DONE]"."""
        async with self.session.post(path, json={**chat(**fields), "stream": True}) as response:
            lines = (await response.text()).split("\n\n")
        assert lines.pop() == ""
        events = [line.removeprefix("data: ") for line in lines]
        return [event if event == "[DONE]" else orjson.loads(event) for event in events]

    async def metric(self, name: str) -> float:
        page = (await self.get("/metrics"))[1].decode()
        return next(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))

    def begin(self, work: Any) -> asyncio.Task:
        return asyncio.create_task(work)

    async def begun(self, count: int = 1) -> None:
        """Wait until so many generations have reached the shard and the engine has begun one."""
        assert await wait_until(lambda: self.shard.in_flight() == count, WITHIN_S), "no generation got to the shard"
        await self.running(WITHIN_S, lambda running: running > 0)

    async def running(self, within_s: float, wanted: Callable[[float], bool]) -> None:
        """Wait until the engine runs as many requests as wanted."""
        async with asyncio.timeout(within_s):
            while not wanted(await self.metric("vllm:num_requests_running")):  # noqa: ASYNC110 - a server tells nobody
                await asyncio.sleep(0.01)

    async def ended_with(self) -> int | None:
        group = self.shard._group
        assert await wait_until(lambda: group.exit_code() is not None, WITHIN_S), "the server lives on"
        return group.exit_code()


def chat(text: str = "Hi", tokens: int = 5, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "ignore_eos": True, **fields}


@pytest.fixture
def play(stand) -> Callable[..., None]:
    """Runs a story with a shard that serves."""
    portal, shard = stand

    async def run(story):
        await shard.ensure_ready(WITHIN_S)
        async with asyncio.timeout(120.0), aiohttp.ClientSession(shard.url) as session:
            await story(Stand(shard, session))

    return lambda story: portal.call(run(story))


def test_what_a_chat_answer_consists_of(play):
    async def story(stand):
        status, answer = await stand.chat(logprobs=True, top_logprobs=0, return_tokens_as_token_ids=True)
        assert status == 200
        assert set(answer) >= {"id", "object", "created", "model", "choices", "usage", "prompt_logprobs"}
        assert (answer["object"], answer["model"]) == ("chat.completion", "tiny")
        assert answer["id"].startswith("chatcmpl-")
        assert answer["usage"].keys() >= {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}
        assert answer["usage"]["completion_tokens"] == 5
        (choice,) = answer["choices"]
        assert set(choice) >= {"index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids"}
        assert (choice["finish_reason"], choice["stop_reason"]) == ("length", None)
        message = choice["message"]
        assert (message["role"], message["refusal"], message["function_call"]) == ("assistant", None, None)
        assert isinstance(message["content"], str)
        assert len(choice["logprobs"]["content"]) == 5
        for entry in choice["logprobs"]["content"]:
            assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
            assert re.fullmatch(r"token_id:\d+", entry["token"])
            assert entry["logprob"] <= 0

    play(story)


CHAT_KEYS = {
    "answer": [
        *("id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage"),
        *("prompt_logprobs", "prompt_token_ids", "prompt_text", "kv_transfer_params", "ec_transfer_params", "metrics"),
    ],
    "choice": ["index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids", "routed_experts"],
    "message": ["role", "content", "refusal", "annotations", "audio", "function_call", "reasoning"],
    "usage": [
        *("prompt_tokens", "total_tokens", "completion_tokens"),
        *("prompt_tokens_details", "completion_tokens_details"),
    ],
}
TEXT_KEYS = {
    "answer": [
        *("id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage"),
        *("kv_transfer_params", "ec_transfer_params", "metrics"),
    ],
    "choice": [
        *("index", "text", "logprobs", "finish_reason", "stop_reason", "token_ids"),
        *("prompt_logprobs", "prompt_token_ids", "routed_experts"),
    ],
}


def test_the_keys_of_an_answer_and_their_order(play):
    async def story(stand):
        _, answer = await stand.chat(logprobs=True)
        (choice,) = answer["choices"]
        parts = {"answer": answer, "choice": choice, "message": choice["message"], "usage": answer["usage"]}
        assert {name: list(part) for name, part in parts.items()} == CHAT_KEYS
        _, text = await stand.post(TEXT, {"prompt": "Hi", "max_tokens": 1})
        assert {"answer": list(text), "choice": list(text["choices"][0])} == TEXT_KEYS

    play(story)


def test_the_keys_of_a_streams_events_and_their_order(play):
    async def story(stand):
        first, token, last, _ = await stand.stream(tokens=2)
        head = ["id", "object", "created", "model", "choices"]
        assert list(first) == [*head, "prompt_token_ids", "prompt_text"]
        assert list(token) == head
        assert list(last) == [*head, "system_fingerprint"]
        choices = [list(event["choices"][0]) for event in (first, token, last)]
        choice = ["index", "delta", "logprobs", "finish_reason"]
        assert choices == [choice, [*choice, "token_ids"], [*choice, "stop_reason", "token_ids"]]

    play(story)


def test_token_ids_come_when_they_are_asked_for(play):
    async def story(stand):
        _, answer = await stand.chat(return_token_ids=True)
        _, tokens = await stand.post(TOKENIZE, {"messages": chat()["messages"]})
        assert answer["prompt_token_ids"] == tokens["tokens"]
        assert len(answer["choices"][0]["token_ids"]) == 5
        assert (await stand.chat())[1]["prompt_token_ids"] is None

    play(story)


def test_a_conversation_goes_on_with_the_fields_that_gym_adds(play):
    async def story(stand):
        reply = {"role": "assistant", "content": "So", "tool_calls": [], "generation_token_ids": [1, 2]}
        messages = [*chat()["messages"], reply, {"role": "user", "content": "And?"}]
        assert (await stand.chat(messages=messages, parallel_tool_calls=False))[0] == 200

    play(story)


def test_completions_tokenize_and_models(play):
    async def story(stand):
        status, text = await stand.post(TEXT, {"prompt": "Hi", "max_tokens": 4, "logprobs": 1, "ignore_eos": True})
        assert (status, text["object"], len(text["choices"][0]["logprobs"]["tokens"])) == (200, "text_completion", 4)
        assert set(text["choices"][0]["logprobs"]) == {"text_offset", "token_logprobs", "tokens", "top_logprobs"}
        _, tokens = await stand.post(TOKENIZE, {"model": "tiny", "prompt": "Hi there"})
        assert set(tokens) >= {"count", "max_model_len", "tokens", "token_strs"}
        assert (tokens["count"], tokens["max_model_len"]) == (len(tokens["tokens"]), 4096)
        assert await stand.post("/detokenize", {"tokens": tokens["tokens"]}) == (200, {"prompt": "Hi there"})
        (model,) = orjson.loads((await stand.get("/v1/models"))[1])["data"]
        assert (model["id"], model["object"], model["max_model_len"]) == ("tiny", "model", 4096)
        assert "version" in orjson.loads((await stand.get("/version"))[1])
        assert await stand.get("/health") == await stand.get("/ping") == (200, b"")
        assert "server_load" in orjson.loads((await stand.get("/load"))[1])

    play(story)


def test_an_answer_is_as_long_as_there_is_room_for(play):
    async def story(stand):
        body = {"prompt": [10] * 4000, "max_tokens": 200, "ignore_eos": True}
        _, answer = await stand.post(TEXT, body)
        assert answer["usage"]["completion_tokens"] == 96
        assert answer["choices"][0]["finish_reason"] == "length"

    play(story)


def test_a_stream_opens_with_the_role_and_closes_with_done(play):
    async def story(stand):
        first, *middle, last, done = await stand.stream()
        assert done == "[DONE]"
        assert (first["object"], first["choices"][0]["delta"]["role"]) == ("chat.completion.chunk", "assistant")
        assert {event["choices"][0]["finish_reason"] for event in middle} == {None}
        assert last["choices"][0]["finish_reason"] == "length"
        *_, usage, done = await stand.stream(stream_options={"include_usage": True})
        assert (usage["choices"], usage["usage"]["completion_tokens"], done) == ([], 5, "[DONE]")

    play(story)


def test_headers(play):
    async def story(stand):
        async with stand.session.post(CHAT, json=chat()) as response:
            names = [name.decode().lower() for name, _ in response.raw_headers]
            assert names == ["date", "server", "content-length", "content-type", "vary"]
            assert response.headers["server"] == "uvicorn"
            assert response.headers["content-type"] == "application/json"
        async with stand.session.post(CHAT, json=chat(stream=True)) as response:
            names = [name.decode().lower() for name, _ in response.raw_headers]
            assert names == ["date", "server", "content-type", "vary", "transfer-encoding"]
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        async with stand.session.post(CHAT, json=chat(), headers={"X-Request-Id": "abc123"}) as response:
            assert "x-request-id" not in response.headers
            assert (await response.json())["id"] == "chatcmpl-abc123"

    play(story)


ERRORS = {  # what is wrong: (path, body, status, type, param, what the message contains)
    "too long": (CHAT, chat("word " * 5000), 400, "BadRequestError", "input_tokens", "maximum context length is 4096"),
    "too many tokens": (CHAT, chat(tokens=5000), 400, "BadRequestError", "max_tokens", "max_tokens=5000 cannot be"),
    "no messages": (CHAT, {"model": "tiny"}, 400, "Bad Request", "body.messages", "Field required"),
    "empty messages": (CHAT, chat(messages=[]), 400, "BadRequestError", None, "Provide at least one message."),
    "unknown model": (CHAT, chat(model="nope"), 404, "NotFoundError", "model", "The model `nope` does not exist."),
    "temperature": (CHAT, chat(temperature=-1), 400, "BadRequestError", "temperature", "temperature"),
    "top_p": (CHAT, chat(top_p=2), 400, "BadRequestError", "top_p", "top_p"),
    "max_tokens": (CHAT, chat(tokens=0), 400, "BadRequestError", "max_tokens", "max_tokens must be at least 1"),
    "no prompt": (TEXT, {"model": "tiny"}, 400, "BadRequestError", "prompt", "Either prompt or prompt_embeds"),
    "unknown token": (TEXT, {"prompt": [10**6]}, 400, "BadRequestError", None, "Token id 1000000 is out of vocabulary"),
    "messages as text": (CHAT, {"messages": "Hi"}, 400, "Bad Request", "body.messages", "valid list"),
    "tokens as text": (CHAT, chat(tokens="x"), 400, "Bad Request", "body.max_tokens", "valid integer"),
    "no tokens": ("/detokenize", {}, 400, "Bad Request", "body.tokens", "Field required"),
    "tools": (
        CHAT,
        chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}], tool_choice="auto"),
        400,
        "BadRequestError",
        None,
        "--enable-auto-tool-choice",
    ),
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS)
def test_bad_requests(play, case):
    path, body, status, kind, param, text = case

    async def story(stand):
        answered, answer = await stand.post(path, body)
        assert answered == status
        assert set(answer) == {"error"}
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        assert (answer["error"]["type"], answer["error"]["code"]) == (kind, status)
        assert answer["error"]["param"] == param
        assert text in answer["error"]["message"]

    play(story)


def test_bodies_that_are_no_json(play):
    async def story(stand):
        json = {"Content-Type": "application/json"}
        status, answer = await stand.post(CHAT, data=b'{"messages": [}', headers=json)
        assert (status, answer["error"]["type"]) == (400, "Bad Request")
        assert answer["error"]["param"].startswith("body.")
        assert "json_invalid" in answer["error"]["message"]
        status, answer = await stand.post(CHAT, data=b"hello", headers={"Content-Type": "text/plain"})
        assert (status, answer["error"]["type"]) == (400, "Bad Request")
        assert "Unsupported Media Type" in answer["error"]["message"]

    play(story)


def test_unknown_fields_and_roles_are_accepted(play):
    async def story(stand):
        assert (await stand.chat(no_such_field=1))[0] == 200
        assert (await stand.chat(messages=[{"role": "wizard", "content": "Hi"}]))[0] == 200

    play(story)


def test_wrong_routes(play):
    async def story(stand):
        assert await stand.get("/nope") == (404, b'{"detail":"Not Found"}')
        assert await stand.get(CHAT) == (405, b'{"detail":"Method Not Allowed"}')
        assert (await stand.post("/pause", params={"mode": "gently"}))[0] == 400
        assert (await stand.post("/sleep", params={"level": 3}))[0] == 400

    play(story)


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


def test_an_idle_connection_is_closed_after_five_seconds_and_one_that_never_asked_is_not(play):
    async def story(stand):
        reader, writer = await asyncio.open_connection("127.0.0.1", stand.shard.port)
        silent, silent_writer = await asyncio.open_connection("127.0.0.1", stand.shard.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: shard\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        began = time.monotonic()
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""
        assert 4.5 <= time.monotonic() - began <= 5 + SOON_S
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(silent.read(), 0.5)
        writer.transport.abort()
        silent_writer.transport.abort()

    play(story)


def test_a_client_that_leaves_frees_the_engine_and_is_noted(play):
    async def story(stand):
        for stream in (False, True):
            call = stand.begin(stand.chat(tokens=3000, stream=stream))
            await stand.begun()
            call.cancel()
            assert await wait_until(lambda: stand.shard.in_flight() == 0, SOON_S)
            assert stand.shard.served()[-1].ending is Delivery.CANCELLED
            await stand.running(SOON_S, lambda running: running == 0)

    play(story)


def test_a_killed_engine_is_a_500_then_a_closed_port_then_an_exit_with_0(play):
    async def story(stand):
        call = stand.begin(stand.chat(tokens=3000))
        await stand.begun()
        stand.shard.signal("engine", signal.SIGKILL)
        assert await call == (500, {"error": ENGINE_DEAD})
        assert await refuses_within(stand, SOON_S)
        assert await stand.ended_with() == 0

    play(story)


def test_a_stream_whose_engine_dies_says_so_and_then_done(play):
    async def story(stand):
        call = stand.begin(stand.stream(tokens=3000))
        await stand.begun()
        stand.shard.signal("engine", signal.SIGKILL)
        *_, error, done = await call
        assert (error, done) == ({"error": ENGINE_DEAD}, "[DONE]")

    play(story)


def test_an_idle_server_follows_its_engine_within_some_seconds(play):
    async def story(stand):
        stand.shard.signal("engine", signal.SIGKILL)
        assert await refuses_within(stand, 6 + SOON_S)
        assert await stand.ended_with() == 0

    play(story)


def test_a_killed_server_says_nothing_and_leaves_its_engine_behind(play):
    async def story(stand):
        call = stand.begin(stand.chat(tokens=3000))
        await stand.begun()
        stand.shard.signal("server", signal.SIGKILL)
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await call
        assert await refuses_within(stand, SOON_S)
        assert await stand.ended_with() == -signal.SIGKILL
        assert stand.shard.pid("engine") is not None
        assert stand.shard.served()[-1].ending is Delivery.RUNNING

    play(story)


def test_a_stream_whose_server_dies_ends_without_an_end(play):
    async def story(stand):
        call = stand.begin(stand.stream(tokens=3000))
        await stand.begun()
        stand.shard.signal("server", signal.SIGKILL)
        with pytest.raises(aiohttp.ClientPayloadError):
            await call

    play(story)


def test_a_stopped_engine_hangs_generations_only_and_they_end_when_it_goes_on(play):
    async def story(stand):
        call = stand.begin(stand.chat(tokens=200))
        await stand.begun()
        stand.shard.signal("engine", signal.SIGSTOP)
        late = stand.begin(stand.chat(tokens=1))
        assert await wait_until(lambda: stand.shard.in_flight() == 2, WITHIN_S)
        for path in ("/health", "/ping", "/version", "/load", "/v1/models", "/metrics"):
            assert (await stand.get(path))[0] == 200
        assert (await stand.post(TOKENIZE, {"prompt": "Hi"}))[0] == 200
        assert (await stand.chat("word " * 5000))[0] == 400
        frozen = (await stand.get("/metrics"))[1]
        for path in ("/is_paused", "/is_sleeping"):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stand.get(path), 0.3)
        assert counters((await stand.get("/metrics"))[1]) == counters(frozen)
        assert (await stand.metric("vllm:num_requests_running")) == 1.0
        assert not call.done()
        assert not late.done()
        stand.shard.signal("engine", signal.SIGCONT)
        assert [(await call)[0], (await late)[0]] == [200, 200]

    play(story)


def test_a_stopped_server_takes_connections_and_answers_when_it_goes_on(play):
    async def story(stand):
        call = stand.begin(stand.chat(tokens=100))
        await stand.begun()
        stand.shard.signal("server", signal.SIGSTOP)
        late = stand.begin(stand.get("/health"))
        await asyncio.wait([late], timeout=0.3)
        assert not late.done()
        assert not call.done()
        stand.shard.signal("server", signal.SIGCONT)
        assert (await late)[0] == 200
        assert (await call)[0] == 200

    play(story)


def test_sigterm_ends_what_is_in_flight_in_one_of_three_ways_and_the_server_with_0(play):
    async def story(stand):
        whole = stand.begin(stand.chat(tokens=3000))
        stream = stand.begin(stand.stream(tokens=3000))
        await stand.begun(2)
        stand.shard.signal("server", signal.SIGTERM)
        assert await refuses_within(stand, SOON_S)
        await asyncio.wait([whole, stream], timeout=SOON_S)
        assert whole.done() == stream.done()
        if whole.done():
            status, answer = await whole
            *_, last, done = await stream
            assert done == "[DONE]"
            if status == 200:
                assert answer["choices"][0]["finish_reason"] == "abort"
                assert answer["usage"]["completion_tokens"] < 3000
                assert last["choices"][0]["finish_reason"] == "abort"
            else:
                assert (status, answer) == (500, {"error": ENGINE_DEAD})
                assert last == {"error": ENGINE_DEAD}
        whole.cancel()
        stream.cancel()
        assert await stand.ended_with() == 0

    play(story)


def test_pause_abort_cuts_what_is_there_and_holds_what_comes(play):
    async def story(stand):
        call = stand.begin(stand.chat(tokens=3000))
        await stand.begun()
        assert await stand.post("/pause", params={"mode": "abort"}) == (200, {"status": "paused"})
        assert (await call)[1]["choices"][0]["finish_reason"] == "abort"
        await held_until(stand, "/resume")

    play(story)


def test_pause_wait_answers_when_what_runs_has_ended(play):
    async def story(stand):
        call = stand.begin(stand.chat(tokens=200))
        await stand.begun()
        assert await stand.post("/pause", params={"mode": "wait"}) == (200, {"status": "paused"})
        assert (await asyncio.wait_for(call, SOON_S))[1]["choices"][0]["finish_reason"] == "length"
        await held_until(stand, "/resume")

    play(story)


def test_pause_keep_freezes_what_is_there_and_its_metrics(play):
    async def story(stand):
        call = stand.begin(stand.chat(tokens=300))
        await stand.begun()
        assert await stand.post("/pause", params={"mode": "keep"}) == (200, {"status": "paused"})
        frozen = (await stand.get("/metrics"))[1]
        await held_until(stand, "/resume", before_resuming=frozen)
        status, answer = await call
        assert (status, answer["choices"][0]["finish_reason"]) == (200, "length")
        assert answer["usage"]["completion_tokens"] == 300

    play(story)


@pytest.mark.parametrize(("level", "state"), [(0, None), (1, "weights_offloaded"), (2, "discard_all")])
def test_a_sleeping_engine_cuts_what_is_there_and_holds_what_comes(play, level, state):
    async def story(stand):
        call = stand.begin(stand.chat(tokens=3000))
        await stand.begun()
        slept = await stand.post("/sleep", params={"level": level})
        assert slept == (200, {"status": "sleeping", "level": level})
        assert (await call)[1]["choices"][0]["finish_reason"] == "abort"
        page = (await stand.get("/metrics"))[1].decode()
        on = re.findall(r'^vllm:engine_sleep_state\{.*sleep_state="(\w+)".*\} 1.0$', page, re.MULTILINE)
        assert on == ([state] if state else [])
        await held_until(stand, "/wake_up")

    play(story)


async def refuses_within(stand: Stand, within_s: float) -> bool:
    """Whether the port comes to refuse connections in time."""

    async def refused() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", stand.shard.port)
        except ConnectionRefusedError:
            return True
        writer.transport.abort()
        return False

    last = time.monotonic() + within_s
    while time.monotonic() < last:
        if await refused():
            return True
        await asyncio.sleep(0.02)
    return False


async def held_until(stand: Stand, route: str, before_resuming: bytes | None = None) -> None:
    """A new request waits, while all else is well, until the route is called."""
    held = stand.begin(stand.chat(tokens=1))
    assert await wait_until(lambda: stand.shard.in_flight() > 0, WITHIN_S)
    assert (await stand.get("/health"))[0] == 200
    assert orjson.loads((await stand.get("/is_paused"))[1]) == {"is_paused": True}
    assert orjson.loads((await stand.get("/is_sleeping"))[1]) == {"is_sleeping": True}
    await asyncio.wait([held], timeout=0.2)
    assert not held.done()
    assert await stand.metric("vllm:num_requests_waiting") == 0.0
    if before_resuming is not None:
        assert counters((await stand.get("/metrics"))[1]) == counters(before_resuming)
    assert (await stand.post(route))[0] == 200
    assert (await asyncio.wait_for(held, WITHIN_S))[0] == 200
    assert orjson.loads((await stand.get("/is_paused"))[1]) == {"is_paused": False}


def counters(page: bytes) -> list[str]:
    """The series that a watch for progress looks at."""
    names = ("generation_tokens_total", "prompt_tokens_total", "prefix_cache_queries_total", "kv_cache_usage_perc")
    return [line for line in page.decode().splitlines() if line.startswith(tuple(f"vllm:{name}{{" for name in names))]
