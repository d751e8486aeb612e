"""What training sends and what engines answer, written as no program would write it twice: bytes, not values.

`@CALL@` stands where the tag of the call goes. The fields are those that NeMo-Gym and NeMo-RL send to vLLM over the
turns of a rollout; the numbers, escapes and spaces are those that a parser and a writer change on the way.
"""

import orjson

from ...asking import CHAT_PATH, MODEL
from ...tags import tag
from .backends import COMPLETIONS, RESPONSES, TOKENIZE

_CALL = b"@CALL@"
_MODEL = b"@MODEL@"

_TOKEN_IDS = rb"""{"model": "@MODEL@", "messages": [
{"role": "system", "content": "You count."},
{"role": "user", "content": "One?"},
{"role": "assistant", "content": null,
 "tool_calls": [{"id": "call_1", "type": "function", "function":
  {"name": "add", "arguments": "{\"a\": 1.0, \"b\": 2}"}}],
 "prompt_token_ids": [1, 15043, 29973, 128009], "generation_token_ids": [6716, 29871, 2],
 "generation_log_probs": [-0.12345678901234568, -1.1920928955078125e-07, -17.0]},
{"role": "tool", "content": "3", "tool_call_id": "call_1"},
{"role": "assistant", "content": "Three.", "prompt_token_ids": [1, 15043], "generation_token_ids": [7563],
 "generation_log_probs": [-0.25]},
{"role": "user", "content": "@CALL@ And four?"}],
"tools": [{"type": "function", "function": {"name": "add", "description": "Adds.", "strict": false,
 "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "integer"}},
 "required": ["a", "b"], "additionalProperties": false}}}],
"tool_choice": "auto", "parallel_tool_calls": true, "temperature": 1.0, "top_p": 1.0, "max_tokens": 64,
"logprobs": true, "top_logprobs": 0, "seed": 7, "stop": ["</answer>"], "skip_special_tokens": false,
"return_tokens_as_token_ids": true, "return_token_ids": true, "required_prefix_token_ids": [1, 15043, 29973, 6716],
"chat_template_kwargs": {"enable_thinking": true}, "metadata": {"rollout": "r1"}, "user": "gym", "x_rollout": "r1"}"""

# NeMo-Gym sends what the model thought under both names.
_REASONING = rb"""{"model": "@MODEL@", "messages": [{"role": "user", "content": "One?"},
{"role": "assistant", "content": "Odd.", "reasoning_content": "It is odd.", "reasoning": "It is odd."},
{"role": "user", "content": "@CALL@ And two?"}], "max_tokens": 64, "include_reasoning": true,
"chat_template_kwargs": {"enable_thinking": true}}"""

# The same meaning in other bytes must not become another meaning.
_WRITING = rb"""{  "max_tokens":16 ,"x_small": 1e-07, "x_float": 1.0, "x_zero": -0.0,
  "x_big": 123456789012345678901234567890, "x_exact": 9007199254740993, "seed" : 9007199254740993,
  "x_long": 0.1000000000000000055511151231257827, "x_null": null, "x_empty": {"a": [], "b": {}},
  "x_escaped": "\u00e9\ud83d\ude00\u2028\/\u0000", "x_raw": "RAW",
  "temperature": 0.7,   "messages": [ {"content": "@CALL@ \u00e9 RAW <b>&amp;", "role": "user"} ],  "model":"@MODEL@"  }
""".replace(b"RAW", "é😀\u2028/".encode())

_COMPLETION = rb"""{"model": "@MODEL@", "prompt": "@CALL@ One,", "max_tokens": 16, "temperature": 1.0, "logprobs": 0,
"return_token_ids": true, "return_tokens_as_token_ids": true, "x_rollout": "r1"}"""

_RESPONSES = rb"""{"model": "@MODEL@", "input": [{"role": "user", "content": "@CALL@ One?"}], "max_output_tokens": 16,
"temperature": 1.0, "store": false, "metadata": {"rollout": "r1"}, "x_rollout": "r1"}"""

_TOKENIZE = rb"""{"model": "@MODEL@", "messages": [{"role": "user", "content": "@CALL@ One?"},
{"role": "assistant", "content": "1", "prompt_token_ids": [1, 2], "generation_token_ids": [3]}],
"tools": [], "add_generation_prompt": true, "x_rollout": "r1"}"""

REQUESTS: dict[str, bytes] = {
    "token_ids": _TOKEN_IDS,
    "reasoning": _REASONING,
    "writing": _WRITING,
    "completion": _COMPLETION,
    "responses": _RESPONSES,
    "tokenize": _TOKENIZE,
}


def request(sample: str, name: str) -> bytes:
    """The body of a sample that carries the tag of call `name`."""
    return REQUESTS[sample].replace(_CALL, tag(name).encode()).replace(_MODEL, MODEL.encode())


def plain(path: str, name: str, *, stream: bool = False) -> bytes:
    """A request to an API that every router which knows it takes."""
    text = tag(name)
    asked: dict[str, dict[str, object]] = {
        CHAT_PATH: {"messages": [{"role": "user", "content": text}], "max_tokens": 16},
        COMPLETIONS: {"prompt": text, "max_tokens": 16},
        RESPONSES: {"input": text, "max_output_tokens": 16},
        TOKENIZE: {"messages": [{"role": "user", "content": text}]},
    }
    return orjson.dumps({"model": MODEL, **asked[path], **({"stream": True} if stream else {})})


_ANSWER_CHAT = rb"""
{"id": "chatcmpl-1", "object":"chat.completion",  "created": 1764494000, "model": "@MODEL@", "choices": [ {"index": 0,
 "message": {"role": "assistant", "content": "caf\u00e9 RAW", "reasoning_content": "why", "reasoning": "why",
 "tool_calls": [], "prompt_token_ids": [1, 15043], "generation_token_ids": [6716, 2],
 "generation_log_probs": [-0.12345678901234568, -1.1920928955078125e-07]},
 "logprobs": {"content": [
 {"token": "token_id:6716", "logprob": -0.12345678901234568, "bytes": [99], "top_logprobs": []},
 {"token": "token_id:2", "logprob": -1.1920928955078125e-07, "bytes": null, "top_logprobs": []}]},
 "finish_reason": "stop", "stop_reason": null, "token_ids": [6716, 2]} ],
 "prompt_token_ids": [1, 15043], "prompt_logprobs": null, "kv_transfer_params": null, "x_engine": {"float": 1.0},
 "usage": {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4, "prompt_tokens_details": null} }
""".replace(b"RAW", "é😀".encode())

_ANSWER_COMPLETION = rb"""{"id":"cmpl-1","object":"text_completion","created":1764494000,"model":"@MODEL@","choices":[
{"index":0,"text":" two","logprobs":{"text_offset":[0],"token_logprobs":[-0.12345678901234568],
"tokens":["token_id:6716"],"top_logprobs":[{"token_id:6716":-0.12345678901234568}]},"finish_reason":"length","stop_reason":null,
"token_ids":[6716],"prompt_token_ids":[1,15043]}],"x_engine":1.0,
"usage":{"prompt_tokens":2,"total_tokens":3,"completion_tokens":1}}"""

_ANSWER_RESPONSES = rb"""{"id":"resp_1","object":"response","created_at":1764494000,"model":"@MODEL@",
"status":"completed","output":[{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text",
"text":"caf\u00e9","annotations":[],"logprobs":[]}],"x_token_ids":[6716,2]}],"parallel_tool_calls":true,
"tool_choice":"auto","tools":[],"metadata":{"rollout":"r1"},"temperature":1.0,"x_engine":1.0,
"usage":{"input_tokens":2,"output_tokens":1,"total_tokens":3}}"""

_ANSWER_TOKENIZE = rb"""{"count":3, "max_model_len":4096,"tokens":[1, 15043,2],"token_strs":null,"x_engine":1.0}"""

ANSWERS: dict[str, bytes] = {
    name: body.replace(_MODEL, MODEL.encode())
    for name, body in {
        "chat": _ANSWER_CHAT,
        "completion": _ANSWER_COMPLETION,
        "responses": _ANSWER_RESPONSES,
        "tokenize": _ANSWER_TOKENIZE,
    }.items()
}

_EVENT = rb"""{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764494000,"model":"@MODEL@",
"choices":[{"index":0,"delta":{"content":"@TEXT@"},"logprobs":{"content":[{"token":"token_id:@ID@",
"logprob":-0.12345678901234568,"bytes":[99],"top_logprobs":[]}]},"finish_reason":null,"token_ids":[@ID@]}],
"x_engine":1.0}"""
_LAST = rb"""{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764494000,"model":"@MODEL@","choices":[
{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"prompt_token_ids":[1,15043]}"""
_TOKENS = ((rb"caf\u00e9", b"6716"), (b" two", b"29871"))


def _event(data: bytes, space: bytes = b" ") -> bytes:
    return b"data:" + space + data.replace(b"\n", b" ").replace(_MODEL, MODEL.encode()) + b"\n\n"


# The events of one stream, each as it goes on the wire.
STREAM = (
    b": the engine is warm\n\n",
    *(_event(_EVENT.replace(b"@TEXT@", text).replace(b"@ID@", number)) for text, number in _TOKENS),
    _event(_LAST, b""),
    _event(b"[DONE]"),
)
