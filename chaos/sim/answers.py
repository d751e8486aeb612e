"""The bodies of answers, in vLLM's shapes: whole ones, stream events, errors. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from ..shard_log import PARAMS
from .requests import Generation, Problem
from .settings import VERSION
from .tokens import EOS, decode, logprob

DONE = b"data: [DONE]\n\n"
ENGINE_DEAD = Problem(
    "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    kind="InternalServerError",
    code=500,
)
_MARK = {"system_fingerprint": f"vllm-{VERSION}-00000000"}  # a stream has it in its last chunk
_TAIL = {"ec_transfer_params": None, "metrics": None}
# What vLLM says when the blocks of a prefill server could not be fetched.
NOT_FETCHED = Problem("Internal server error", kind="InternalServerError", code=500)
SHUTTING_DOWN = Problem("cannot schedule new futures after shutdown", kind="InternalServerError", code=500)


def error_body(problem: Problem) -> bytes:
    """`{"error": {message, type, param, code}}`."""
    return orjson.dumps(_error(problem))


def error_event(problem: Problem) -> bytes:
    """The same as a stream event: what a client gets whose status line is long out."""
    return _event(_error(problem))


def _error(problem: Problem) -> dict[str, Any]:
    return {"error": {"message": problem.message, "type": problem.kind, "param": problem.param, "code": problem.code}}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


@dataclass
class Answer:
    """One answer as it grows: what every shape of it is made from."""

    asked: Generation
    model: str
    id: str  # without the "chatcmpl-" or the like in front
    created: int  # Unix seconds
    transfer: dict[str, Any] | None = None  # of blocks that are kept for a decode server
    tokens: list[int] = field(default_factory=list)
    finish: str | None = None

    def add(self, tokens: list[int], finish: str | None) -> None:
        """Take what the engine put out."""
        self.tokens += tokens
        self.finish = finish

    def whole(self) -> bytes:
        """The body of an answer that is not streamed."""
        return orjson.dumps(_WHOLE[self.asked.path](self))

    def opening(self) -> Iterator[bytes]:
        """Events before the first token."""
        if self.asked.path == "/v1/chat/completions":
            first = {"delta": {"role": "assistant", "content": ""}, "logprobs": None}
            yield _event({**_chunk(self, first, None), "prompt_token_ids": _prompt_ids(self), "prompt_text": None})

    def event(self, tokens: list[int], finish: str | None) -> bytes:
        """The event of some new tokens, which `add` has taken already."""
        first = len(self.tokens) - len(tokens)
        ids = tokens if self.asked.token_ids else None
        part: dict[str, Any]
        end: dict[str, Any]
        if self.asked.path == "/v1/chat/completions":
            part = {"delta": {"content": decode(tokens)}, "logprobs": _chat_logprobs(self, tokens, first)}
            end = {"token_ids": ids} if finish is None else {"stop_reason": None, "token_ids": ids}
        else:
            part = {"text": decode(tokens), "logprobs": _text_logprobs(self, tokens, first)}
            end = {"stop_reason": None, "prompt_token_ids": None, "token_ids": ids}
        last = finish is not None and not self.asked.usage_chunk
        return _event({**_chunk(self, part, finish, **end), **(_MARK if last else {})})

    def closing(self) -> Iterator[bytes]:
        """Events after the last token."""
        if self.asked.usage_chunk:
            yield _event({**_head(self, stream=True), "choices": [], "usage": _usage(self), **_MARK})
        yield DONE


def _head(answer: Answer, *, stream: bool) -> dict[str, Any]:
    if answer.asked.path == "/v1/chat/completions":
        prefix, kind = "chatcmpl", "chat.completion.chunk" if stream else "chat.completion"
    else:
        prefix, kind = "cmpl", "text_completion"
    return {"id": f"{prefix}-{answer.id}", "object": kind, "created": answer.created, "model": answer.model}


def _chunk(answer: Answer, part: dict[str, Any], finish: str | None, **end: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, **part, "finish_reason": finish, **end}
    return {**_head(answer, stream=True), "choices": [choice]}


def _chat(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": decode(answer.tokens),
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": None,
    }
    choice = {
        "index": 0,
        "message": message,
        "logprobs": _chat_logprobs(answer, answer.tokens, 0),
        "finish_reason": answer.finish,
        "stop_reason": None,
        "token_ids": answer.tokens if answer.asked.token_ids else None,
        "routed_experts": None,
    }
    prompt = {"prompt_logprobs": None, "prompt_token_ids": _prompt_ids(answer), "prompt_text": None}
    return {**_whole(answer, choice), **prompt, PARAMS: answer.transfer, **_TAIL}


def _text(answer: Answer) -> dict[str, Any]:
    choice = {
        "index": 0,
        "text": decode(answer.tokens),
        "logprobs": _text_logprobs(answer, answer.tokens, 0),
        "finish_reason": answer.finish,
        "stop_reason": None,
        "token_ids": answer.tokens if answer.asked.token_ids else None,
        "prompt_logprobs": None,
        "prompt_token_ids": _prompt_ids(answer),
        "routed_experts": None,
    }
    return {**_whole(answer, choice), PARAMS: answer.transfer, **_TAIL}


def _whole(answer: Answer, choice: dict[str, Any]) -> dict[str, Any]:
    return {
        **_head(answer, stream=False),
        "choices": [choice],
        "service_tier": None,
        **_MARK,
        "usage": {**_usage(answer), "prompt_tokens_details": None, "completion_tokens_details": None},
    }


def _prompt_ids(answer: Answer) -> list[int] | None:
    return answer.asked.prompt if answer.asked.token_ids else None


def _responses(answer: Answer) -> dict[str, Any]:
    status = "completed" if answer.finish == "stop" else "incomplete"
    text = {"type": "output_text", "text": decode(answer.tokens), "annotations": []}
    message = {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "status": "completed"}
    prompt, new = len(answer.asked.prompt), len(answer.tokens)
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": answer.created,
        "model": answer.model,
        "status": status,
        "incomplete_details": None if status == "completed" else {"reason": _INCOMPLETE.get(answer.finish or "")},
        "output": [{**message, "content": [text]}],
        "usage": {"input_tokens": prompt, "output_tokens": new, "total_tokens": prompt + new},
        PARAMS: answer.transfer,
    }


_INCOMPLETE = {"length": "max_output_tokens", "abort": "abort"}
_WHOLE = {"/v1/chat/completions": _chat, "/v1/completions": _text, "/v1/responses": _responses}


def _usage(answer: Answer) -> dict[str, Any]:
    prompt, new = len(answer.asked.prompt), len(answer.tokens)
    return {"prompt_tokens": prompt, "total_tokens": prompt + new, "completion_tokens": new}


def _name(answer: Answer, token: int) -> str:
    if answer.asked.token_id_names:
        return f"token_id:{token}"
    return "</s>" if token == EOS else decode([token])


def _chat_logprobs(answer: Answer, tokens: list[int], first: int) -> dict[str, Any] | None:
    if not answer.asked.logprobs:
        return None
    content: list[dict[str, Any]] = [
        {
            "token": _name(answer, token),
            "logprob": logprob(token, position),
            "bytes": list(decode([token], keep_special=True).encode()),
            "top_logprobs": [],
        }
        for position, token in enumerate(tokens, first)
    ]
    return {"content": content}


def _text_logprobs(answer: Answer, tokens: list[int], first: int) -> dict[str, Any] | None:
    if not answer.asked.logprobs:
        return None
    values = [logprob(token, position) for position, token in enumerate(tokens, first)]
    names = [_name(answer, token) for token in tokens]
    offsets, offset = [], len(decode(answer.tokens[:first]))
    for token in tokens:
        offsets.append(offset)
        offset += len(decode([token]))
    top = [{name: value} for name, value in zip(names, values, strict=True)]
    return {"text_offset": offsets, "token_logprobs": values, "tokens": names, "top_logprobs": top}
