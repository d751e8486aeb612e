"""Which requests have two legs, and what is in them."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymproof.router.two_leg import (
    ONE_SERVER,
    Missing,
    Plan,
    member,
    plan_legs,
    read_transfer,
    with_members,
    without_lines,
)

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
KEEP = {"do_remote_decode": True, "do_remote_prefill": False}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("path", "asked", "changed"),
    [
        (CHAT, {}, {"max_tokens": 1}),
        (CHAT, {"max_tokens": 9, "max_completion_tokens": 9}, {"max_tokens": 1, "max_completion_tokens": 1}),
        (CHAT, {"max_completion_tokens": None}, {"max_tokens": 1, "max_completion_tokens": None}),
        (CHAT, {"min_tokens": 5}, {"max_tokens": 1, "min_tokens": 1}),
        (CHAT, {"min_tokens": 0}, {"max_tokens": 1, "min_tokens": 0}),
        (CHAT, {"stream": True, "stream_options": {"include_usage": True}}, {"max_tokens": 1, "stream_options": None}),
        (TEXT, {"prompt": [1, 2, 3]}, {"max_tokens": 1, "prompt": [1, 2, 3]}),
        (TEXT, {"prompt": ["one"], "n": 1}, {"max_tokens": 1, "prompt": ["one"], "n": 1}),
        (RESPONSES, {"max_output_tokens": 7}, {"max_output_tokens": 1}),
    ],
)
def test_a_prefill_leg_asks_for_one_token_in_one_piece(path, asked, changed):
    legs = plan_legs(path, orjson.dumps(asked))

    assert legs.plan is Plan.TWO_LEGS
    assert json.loads(legs.prefill) == {**changed, "stream": False, "kv_transfer_params": KEEP}


@pytest.mark.parametrize(
    "asked",
    [
        {"n": 2},
        {"n": [2]},
        {"best_of": 3},
        {"use_beam_search": True},
        {"prompt": ["a", "b"]},
        {"prompt": [[1], [2]]},
        {"prompt_embeds": "x"},
        {"echo": True},
        {"prompt_logprobs": 0},
        {"previous_response_id": "r"},
        {"background": True},
    ],
)
def test_what_one_server_must_do_has_one_leg(asked):
    assert plan_legs(TEXT, orjson.dumps(asked)).plan is Plan.DECODE_ONLY


def test_every_row_of_that_table_is_tried_above():
    assert len(ONE_SERVER) == 9


@pytest.mark.parametrize("path", ["/tokenize", "/v1/models"])
def test_only_generations_have_two_legs(path):
    assert plan_legs(path, b'{"kv_transfer_params":{"a":1}}').plan is Plan.DECODE_ONLY


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"[" * 100_000, b'"x"', b'{"top_p":NaN}', '{"a":1}'.encode("utf-16")]
)
def test_what_cannot_be_spliced_is_left_to_the_decode_server(body):
    assert plan_legs(CHAT, body).plan is Plan.DECODE_ONLY


@pytest.mark.parametrize(
    "body",
    [
        b'{"kv_transfer_params":{"remote_host":"evil"}}',
        b'{"kv\\u005ftransfer_params":{}}',
        b'{"top_p":NaN,"kv_transfer_params":{"remote_host":"evil"}}',
        '{"kv_transfer_params":{"remote_host":"evil"}}'.encode("utf-16"),
    ],
)
def test_a_client_may_not_name_the_host_that_a_decode_server_fetches_from(body):
    assert plan_legs(CHAT, body).plan is Plan.REFUSED


@given(st.dictionaries(st.text(), JSON, max_size=4), st.sampled_from(["", " ", "\n\t"]), JSON)
def test_appended_members_win_and_every_byte_before_them_stays(document, space, value):
    body = (json.dumps(document, ensure_ascii=False)[:-1] + space + "}" + space).encode("utf-8", "replace")
    longer = with_members(body, {"new": json.dumps(value).encode()})

    assert longer.startswith(body.rstrip()[:-1])
    assert json.loads(longer) == {**json.loads(body), "new": value}


@given(JSON, st.sampled_from([None, 2]))
def test_a_members_bytes_come_out_as_they_are(value, indent):
    raw = json.dumps(value, indent=indent)
    document = f'{{"a": [1, {{"key": 0}}], "key" :0, "\\u006bey" : {raw} , "z": "key"}}'

    assert member(document.encode(), "key") == raw.encode()


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b'{"kv_transfer_params": {"remote_port" : 5600,"x":1e400}}', b'{"remote_port" : 5600,"x":1e400}'),
        (b'{"kv_transfer_params":null}', Missing.NO_PARAMS),
        (b'{"kv_transfer_params":{}}', Missing.NO_PARAMS),
        (b'{"choices":[{"kv_transfer_params":{"a":1}}]}', Missing.NO_PARAMS),
        (b"{}", Missing.NO_PARAMS),
        (b'{"kv_transfer_params":{"transfer_mode":"push"}}', Missing.PUSH_MODE),
        (b'{"kv_transfer_params":{"transfer_mode":"pull"}}', b'{"transfer_mode":"pull"}'),
    ],
)
def test_parameters_are_opaque_but_for_the_mode(answer, found):
    assert read_transfer(answer) == found


def test_header_lines_are_left_out_by_name():
    lines = b"A: 1\r\nX-Request-ID: mine\r\nB: x-request-id\r\n"

    assert without_lines(lines, frozenset({b"x-request-id"})) == b"A: 1\r\nB: x-request-id\r\n"
