import orjson
import pytest

from gymproof.chaos.sim.answers import error_body
from gymproof.chaos.sim.requests import RequestError, parse_generation, parse_json
from gymproof.chaos.sim.settings import Settings

CHAT = "/v1/chat/completions"
SETTINGS = Settings(port=1, max_model_len=200)
MESSAGES = [{"role": "user", "content": "Hi"}]


def problem_of(body, path=CHAT, content_type="application/json"):
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    with pytest.raises(RequestError) as caught:
        parse_generation(path, parse_json(raw, content_type), SETTINGS)
    return caught.value.problem


@pytest.mark.parametrize(
    ("body", "code", "kind", "param"),
    [
        (b'{"model": x', 400, "Bad Request", "body.10"),
        (b"[]", 400, "Bad Request", "body"),
        (b"", 400, "Bad Request", "body"),
        ({}, 400, "Bad Request", "body.messages"),
        ({"messages": []}, 400, "BadRequestError", None),
        ({"messages": "Hi"}, 400, "Bad Request", "body.messages"),
        ({"messages": MESSAGES, "model": "nope"}, 404, "NotFoundError", "model"),
        ({"messages": MESSAGES, "n": -1}, 400, "BadRequestError", None),
        ({"messages": MESSAGES, "temperature": -1}, 400, "BadRequestError", "temperature"),
        ({"messages": MESSAGES, "temperature": "warm"}, 400, "Bad Request", "body.temperature"),
        ({"messages": MESSAGES, "top_p": 2}, 400, "BadRequestError", "top_p"),
        ({"messages": MESSAGES, "logit_bias": {"99999": 1}}, 400, "BadRequestError", "logit_bias"),
        ({"messages": MESSAGES, "tools": [{}], "tool_choice": "auto"}, 400, "BadRequestError", None),
        ({"messages": MESSAGES, "max_tokens": 0}, 400, "BadRequestError", "max_tokens"),
        ({"messages": MESSAGES, "max_tokens": "7"}, 400, "Bad Request", "body.max_tokens"),
        ({"messages": MESSAGES, "max_tokens": 201}, 400, "BadRequestError", "max_tokens"),
        ({"messages": [{"role": "user", "content": "x" * 300}]}, 400, "BadRequestError", "input_tokens"),
    ],
)
def test_a_bad_chat_request_gets_vllms_error(body, code, kind, param):
    problem = problem_of(body)

    assert (problem.code, problem.kind, problem.param) == (code, kind, param)


def test_the_body_of_an_error_has_vllms_shape():
    problem = problem_of({"messages": [{"role": "user", "content": "x" * 300}]})

    assert orjson.loads(error_body(problem)) == {
        "error": {
            "message": "This model's maximum context length is 200 tokens. However, your prompt contains at least 201 "
            "input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the "
            "input prompt. (parameter=input_tokens, value=201)",
            "type": "BadRequestError",
            "param": "input_tokens",
            "code": 400,
        }
    }


def test_an_unknown_model_is_named_with_the_known_one():
    assert problem_of({"messages": MESSAGES, "model": "nope"}).message == (
        "The model `nope` does not exist. Valid aliases: tiny."
    )


def test_plain_text_is_no_request():
    problem = problem_of({"messages": MESSAGES}, content_type="text/plain")

    assert (problem.code, problem.kind) == (400, "Bad Request")
    assert "Unsupported Media Type" in problem.message


@pytest.mark.parametrize(
    ("prompt", "param"),
    [(None, "prompt"), ("", "prompt"), ([], "prompt"), (["a"], "body.prompt"), (7, "body.prompt"), ([10**9], None)],
)
def test_a_completion_needs_a_text_or_token_ids(prompt, param):
    assert problem_of({"prompt": prompt}, "/v1/completions").param == param


def test_a_response_needs_an_input():
    assert problem_of({"input": 7}, "/v1/responses").param == "body.input"


def test_unknown_fields_and_roles_are_accepted():
    body = {"messages": [{"role": "oracle", "content": "Hi"}], "chat_template_kwargs": {}, "frobnicate": 1}

    assert parse_generation(CHAT, body, SETTINGS).prompt


def test_without_a_limit_an_answer_may_fill_the_context():
    asked = parse_generation(CHAT, {"messages": MESSAGES}, SETTINGS)

    assert asked.max_tokens == 200 - len(asked.prompt)


def test_a_limit_beyond_the_context_is_cut_to_what_there_is_room_for():
    asked = parse_generation("/v1/completions", {"prompt": [7] * 150, "max_tokens": 100}, SETTINGS)

    assert asked.max_tokens == 50


def test_all_three_routes_take_their_prompt_from_their_own_field():
    chat = parse_generation(CHAT, {"messages": MESSAGES}, SETTINGS)
    text = parse_generation("/v1/completions", {"prompt": "Hi"}, SETTINGS)
    response = parse_generation("/v1/responses", {"input": "Hi"}, SETTINGS)

    assert chat.prompt == response.prompt
    assert parse_generation("/v1/completions", {"prompt": text.prompt}, SETTINGS).prompt == text.prompt


def test_the_fields_that_gym_sends_are_understood():
    body = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 0, "return_tokens_as_token_ids": True}

    asked = parse_generation(CHAT, {**body, "max_tokens": 7, "ignore_eos": True, "return_token_ids": True}, SETTINGS)

    assert (asked.logprobs, asked.token_id_names, asked.token_ids) == (True, True, True)
    assert (asked.max_tokens, asked.ignore_eos, asked.stream) == (7, True, False)
