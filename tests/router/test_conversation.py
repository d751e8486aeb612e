"""Which conversation a request belongs to."""

import json

import orjson
import pytest

from gymproof.router.conversation import answer_key, context_tokens, turn_of, without_ids
from gymproof.router.policies import Turn

CHAT = "/v1/chat/completions"
FIRST = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "go"}]
SAID = {"role": "assistant", "content": "<think>hm</think>\n\nhello", "tool_calls": None}
TOOL = {"role": "tool", "content": "done", "tool_call_id": "1"}

# Orjson reads lists nested 1,024 deep, and writes 254.
NEST = b"[" * 900 + b"]" * 900
TOO_DEEP = [b'{"messages":[%b]}' % NEST, b'{"prompt":[%b]}' % NEST, b'{"messages":[{"content":[%b]}]}' % NEST]
DEEP_ANSWER = b'{"choices":[{"message":{"role":"assistant","name":%b}}]}' % NEST


def read(messages, path=CHAT, key="messages"):
    return turn_of(path, b"", orjson.dumps({"model": "m", key: messages}), lambda _: False)


def answered(message):
    return orjson.dumps({"choices": [{"message": message}], "usage": {"total_tokens": 9}})


def test_a_first_turn_is_known_by_its_group_only():
    assert read(FIRST).keys == ()
    assert read(FIRST).group == read([*FIRST, SAID]).group


@pytest.mark.parametrize(
    "kept",
    [
        SAID,
        {"role": "assistant", "content": "hello"},
        {"role": "assistant", "content": [{"type": "text", "text": "hello"}], "reasoning_content": "hm"},
        SAID | {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [0.1]},
    ],
)
def test_the_second_turn_is_known_by_the_first_answer_whatever_the_client_adds_or_drops(kept):
    named = answer_key(read(FIRST), answered(SAID))

    assert named in read([*FIRST, kept, TOOL]).keys
    assert named not in read([*FIRST, {"role": "assistant", "content": "other"}, TOOL]).keys


@pytest.mark.parametrize("ids", [[], [1, 2, 3], ["1", "]"], [[1], [2]], [{"a": 1}], None, 7, "]"])
@pytest.mark.parametrize("written", [orjson.dumps, lambda value: json.dumps(value).encode()])
def test_prompt_token_ids_are_skipped_and_nothing_else(ids, written):
    said = {**SAID, "prompt_token_ids": ids, "name": 'a "prompt_token_ids":[0] \\" in a text'}
    document = {"messages": [*FIRST, said, [9], TOOL], "prompt_token_ids": ids, "n": 2}
    kept = orjson.loads(without_ids(written(document)))
    plain = isinstance(ids, list) and all(isinstance(number, int) for number in ids)

    for part in (said, document):
        part["prompt_token_ids"] = 0 if plain else ids
    assert kept == document


def test_a_later_turn_is_known_by_the_turn_before_it():
    second = [*FIRST, SAID, TOOL]

    assert read(second).keys[0] in read([*second, SAID, TOOL]).keys
    assert read(second).keys[-1] == read([*second, SAID, TOOL]).keys[-1]


def test_a_responses_input_is_a_conversation_too():
    asked = [{"role": "user", "content": "go"}]
    said = [
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "name": "ls", "arguments": "{}", "call_id": "1"},
    ]
    named = answer_key(read(asked, key="input"), orjson.dumps({"output": said}))
    done = {"type": "function_call_output", "call_id": "1", "output": "x"}

    assert named in read([*asked, *said, done], key="input").keys
    assert named in read([*asked, said[1], done], key="input").keys


def test_a_tokenize_call_is_known_as_its_turn_is_and_leaves_nothing():
    turn = read([*FIRST, SAID, TOOL], "/tokenize")

    assert turn.light
    assert turn.keys == read([*FIRST, SAID, TOOL]).keys


def test_prompts_that_begin_alike_are_a_group():
    one = turn_of("/v1/completions", b"", orjson.dumps({"prompt": "a" * 5000 + "b"}), lambda _: False)
    other = turn_of("/v1/completions", b"", orjson.dumps({"prompt": "a" * 5000 + "c"}), lambda _: False)

    assert one.group == other.group != b""


def test_the_body_is_not_read_where_the_header_is_known():
    turn = turn_of(CHAT, b"r1", orjson.dumps({"messages": FIRST}), lambda _: True)

    assert (turn.keys, turn.group) == ((b"header:r1",), b"")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"messages":3}', b'{"messages":[1,null]}', b'{"prompt":[]}', *TOO_DEEP]
)
def test_a_body_without_a_conversation_has_no_session(body):
    assert turn_of(CHAT, b"", body, lambda _: False).keys == ()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"choices":[]}', b'{"output":3}', DEEP_ANSWER])
def test_an_answer_that_says_nothing_names_nothing(body):
    assert answer_key(read(FIRST), body) == b""
    assert answer_key(Turn((b"k",), b"g"), answered(SAID)) == b""


def test_the_context_is_what_the_answer_says():
    assert context_tokens(answered(SAID)) == 9
    assert context_tokens(b"{}") is None
