"""What only the simulated shard has: its tokens, a log, a choice of how SIGTERM ends. `vllm_parity` has the rest."""

import asyncio
import hashlib
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import orjson
import pytest

from gymproof.chaos.fleet import LocalShard, SimFleet
from gymproof.chaos.history import Delivery
from gymproof.chaos.tags import tag
from gymproof.chaos.waiting import wait_until

WITHIN_S = 10.0
Story = Callable[[LocalShard, aiohttp.ClientSession], Awaitable[None]]


@pytest.fixture
def with_shard(tmp_path: Path) -> Callable[..., None]:
    """Runs a story with one real shard and a client session."""

    async def run(story: Story, options: dict) -> None:
        async with SimFleet(1, folder=tmp_path, **options) as fleet:
            shard = fleet.shards[0]
            async with asyncio.timeout(3 * WITHIN_S), aiohttp.ClientSession(shard.url) as session:
                await story(shard, session)

    return lambda story, **options: asyncio.run(run(story, options))


def chat(text="Hi", tokens=10, **fields):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "ignore_eos": True, **fields}


async def post(session, body, path="/v1/chat/completions"):
    async with session.post(path, json=body) as response:
        return response.status, await response.json()


def refuses(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


async def wait_for_work(shard, count=1):
    assert await wait_until(lambda: shard.in_flight() == count, WITHIN_S), "no work got in flight"


async def running(session):
    async with session.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    return next(line for line in lines if line.startswith("vllm:num_requests_running")).split()[-1]


async def wait_running(session, value):
    async with asyncio.timeout(WITHIN_S):
        while await running(session) != value:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)


def test_a_chat_answer_has_what_gym_reads(with_shard):
    async def story(_shard, session):
        status, answer = await post(session, chat(logprobs=True, return_tokens_as_token_ids=True))
        choice = answer["choices"][0]
        assert (status, choice["finish_reason"], choice["message"]["role"]) == (200, "length", "assistant")
        tokens = [int(entry["token"].removeprefix("token_id:")) for entry in choice["logprobs"]["content"]]
        assert len(tokens) == answer["usage"]["completion_tokens"] == 10
        _, encoded = await post(session, {"prompt": choice["message"]["content"]}, "/tokenize")
        assert encoded["tokens"] == tokens

    with_shard(story)


def test_completions_and_responses_answer_too(with_shard):
    async def story(_shard, session):
        _, text = await post(session, {"prompt": "Hi", "max_tokens": 5, "logprobs": 1}, "/v1/completions")
        assert text["object"] == "text_completion"
        assert len(text["choices"][0]["logprobs"]["tokens"]) == text["usage"]["completion_tokens"]
        _, response = await post(session, {"input": "Hi", "max_output_tokens": 5}, "/v1/responses")
        assert (response["object"], response["status"]) == ("response", "incomplete")
        assert response["usage"]["output_tokens"] == 5

    with_shard(story)


def test_tokenize_and_detokenize_are_each_others_inverse(with_shard):
    async def story(_shard, session):
        _, encoded = await post(session, {"model": "tiny", "prompt": "Grüße, who?"}, "/tokenize")
        assert (encoded["count"], encoded["max_model_len"]) == (len(encoded["tokens"]), 4096)
        assert encoded["token_strs"] is None
        _, decoded = await post(session, {"tokens": encoded["tokens"]}, "/detokenize")
        assert decoded == {"prompt": "Grüße, who?"}
        assert await post(session, {"tokens": [10**9]}, "/detokenize") == (200, {"prompt": ""})
        assert (await post(session, {}, "/detokenize"))[0] == 400
        _, messages = await post(session, {"messages": chat()["messages"]}, "/tokenize")
        assert messages["count"] > encoded["count"]

    with_shard(story)


def test_two_shards_of_one_seed_answer_alike(tmp_path):
    async def story():
        async with SimFleet(2, folder=tmp_path, seed=7) as fleet, aiohttp.ClientSession() as session:
            answers = [(await post(session, chat(), f"{shard.url}/v1/chat/completions"))[1] for shard in fleet.shards]
        assert answers[0]["choices"] == answers[1]["choices"]
        assert answers[0]["id"] != answers[1]["id"]

    asyncio.run(story())


def test_concurrent_requests_progress_together(with_shard):
    async def story(_shard, session):
        began = time.monotonic()
        await asyncio.gather(*(post(session, chat(f"{number}", 40)) for number in range(10)))
        one_after_the_other = 10 * 40 * 0.01
        assert 0.4 <= time.monotonic() - began < one_after_the_other

    with_shard(story, token_ms=10)


def test_a_stream_has_one_event_a_token_and_says_done(with_shard):
    async def story(_shard, session):
        async with session.post("/v1/chat/completions", json=chat(stream=True)) as response:
            events = (await response.text()).split("\n\n")[:-1]
        assert events[-1] == "data: [DONE]"
        chunks = [orjson.loads(event.removeprefix("data: ")) for event in events[:-1]]
        assert len(chunks) == 11  # the role, and ten tokens
        whole = (await post(session, chat()))[1]["choices"][0]["message"]["content"]
        assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == whole
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"

    with_shard(story)


def test_the_log_has_the_hashes_of_the_very_bytes(with_shard):
    async def story(shard, session):
        for stream in (False, True):
            body = orjson.dumps(chat(tag("r1.t0"), stream=stream))
            headers = {"Content-Type": "application/json"}
            async with session.post("/v1/chat/completions", data=body, headers=headers) as response:
                answer = await response.read()
            served = shard.served()[-1]
            assert (served.call, served.status, served.ending) == ("r1.t0", 200, Delivery.ANSWERED)
            assert served.request_sha256 == hashlib.sha256(body).hexdigest()
            assert served.response_sha256 == hashlib.sha256(answer).hexdigest()

    with_shard(story)


def test_an_idle_server_says_503_when_its_engine_is_gone_and_ends_by_itself(with_shard):
    async def story(shard, session):
        shard.signal("engine", signal.SIGKILL)
        async with asyncio.timeout(WITHIN_S):
            while (await session.get("/health")).status == 200:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.01)
        async with session.get("/health") as response:
            assert (response.status, await response.read()) == (503, b"")
        assert (await session.get("/v1/models")).status == 200
        assert (await post(session, chat()))[0] == 500
        assert await wait_until(lambda: shard.pid("server") is None, WITHIN_S)

    with_shard(story)


def test_sigterm_cuts_what_is_in_flight_into_a_whole_200_and_the_server_exits_with_0(with_shard):
    async def story(shard, session):
        call = asyncio.create_task(post(session, chat(tokens=3000)))
        await wait_running(session, "1.0")
        shard.signal("server", signal.SIGTERM)
        status, answer = await call
        assert (status, answer["choices"][0]["finish_reason"]) == (200, "abort")
        assert answer["usage"]["completion_tokens"] < 3000
        group = shard._group
        assert await wait_until(lambda: group.exit_code() is not None, WITHIN_S)
        assert group.exit_code() == 0

    with_shard(story)


def test_sigterm_may_be_a_500(with_shard):
    async def story(shard, session):
        call = asyncio.create_task(post(session, chat(tokens=3000)))
        await wait_running(session, "1.0")
        shard.signal("server", signal.SIGTERM)
        assert (await call)[0] == 500
        group = shard._group
        assert await wait_until(lambda: group.exit_code() == 0, WITHIN_S)

    with_shard(story, sigterm="error")


def test_sigterm_may_be_silence_until_the_client_leaves(with_shard):
    async def story(shard, session):
        call = asyncio.create_task(post(session, chat(tokens=3000)))
        await wait_running(session, "1.0")
        shard.signal("server", signal.SIGTERM)
        assert await wait_until(lambda: refuses(shard.port), WITHIN_S)
        await asyncio.wait([call], timeout=0.5)
        assert not call.done()
        assert shard.in_flight() == 1
        assert shard.pid("engine") is None
        call.cancel()
        group = shard._group
        assert await wait_until(lambda: group.exit_code() == 0, WITHIN_S)
        assert shard.served()[-1].ending is Delivery.CANCELLED

    with_shard(story, sigterm="silence")


def test_sigterm_with_a_timeout_lets_what_is_in_flight_finish_and_refuses_what_comes(with_shard):
    async def story(shard, session):
        call = asyncio.create_task(post(session, chat(tokens=200)))
        await wait_running(session, "1.0")
        shard.signal("server", signal.SIGTERM)
        async with asyncio.timeout(WITHIN_S):
            while (late := await post(session, chat(tokens=1)))[0] == 200:
                pass
        assert late[1]["error"]["message"] == "cannot schedule new futures after shutdown"
        assert (await session.get("/health")).status == 200
        status, answer = await call
        assert (status, answer["choices"][0]["finish_reason"]) == (200, "length")
        group = shard._group
        assert await wait_until(lambda: group.exit_code() is not None, WITHIN_S)
        assert group.exit_code() == 0

    with_shard(story, shutdown_timeout_s=30.0)
