"""What answers, streams and headers consist of."""

import re

import orjson

CHAT, TEXT, TOKENIZE = "/v1/chat/completions", "/v1/completions", "/tokenize"


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
        _, tokens = await stand.post(TOKENIZE, {"messages": stand.body()["messages"]})
        assert answer["prompt_token_ids"] == tokens["tokens"]
        assert len(answer["choices"][0]["token_ids"]) == 5
        assert (await stand.chat())[1]["prompt_token_ids"] is None

    play(story)


def test_a_conversation_goes_on_with_the_fields_that_gym_adds(play):
    async def story(stand):
        reply = {"role": "assistant", "content": "So", "tool_calls": [], "generation_token_ids": [1, 2]}
        messages = [*stand.body()["messages"], reply, {"role": "user", "content": "And?"}]
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
        async with stand.session.post(CHAT, json=stand.body()) as response:
            names = [name.decode().lower() for name, _ in response.raw_headers]
            assert names == ["date", "server", "content-length", "content-type", "vary"]
            assert response.headers["server"] == "uvicorn"
            assert response.headers["content-type"] == "application/json"
        async with stand.session.post(CHAT, json=stand.body(stream=True)) as response:
            names = [name.decode().lower() for name, _ in response.raw_headers]
            assert names == ["date", "server", "content-type", "vary", "transfer-encoding"]
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        async with stand.session.post(CHAT, json=stand.body(), headers={"X-Request-Id": "abc123"}) as response:
            assert "x-request-id" not in response.headers
            assert (await response.json())["id"] == "chatcmpl-abc123"

    play(story)
