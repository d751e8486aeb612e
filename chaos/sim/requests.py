"""From a request body to what the engine is asked for, or to the 4xx that vLLM would give."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from .settings import Settings
from .tokens import VOCABULARY, encode, render


@dataclass(frozen=True, slots=True)
class Problem:
    """What an error answer says; `kind` is vLLM's error type, `code` the HTTP status too."""

    message: str
    kind: str = "BadRequestError"
    param: str | None = None
    code: int = 400


class RequestError(Exception):
    """The request gets an error answer."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation as the engine and the answer need it."""

    path: str
    prompt: list[int]
    max_tokens: int
    ignore_eos: bool
    stream: bool
    logprobs: bool
    token_id_names: bool  # logprobs name tokens as "token_id:N"
    token_ids: bool  # the answer carries the ids of prompt and answer
    usage_chunk: bool


def parse_json(body: bytes, content_type: str) -> dict[str, Any]:
    """The JSON object in a request body; raises RequestError for anything else."""
    if content_type.partition(";")[0].strip().lower() not in {"application/json", ""}:
        message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
        raise RequestError(Problem(message, kind="Bad Request"))
    if not body:
        raise _invalid("missing", None, "Field required")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _invalid("json_invalid", error.pos, "JSON decode error") from error
    if not isinstance(value, dict):
        raise _invalid("model_attributes_type", None, "Input should be a valid dictionary or object")
    return value


def _invalid(kind: str, where: str | int | None, message: str, part: str = "body") -> RequestError:
    """What FastAPI's validation makes of a body or a query, in vLLM's wrapping; `where` is a field or a byte offset."""
    param = part if where is None else f"{part}.{where}"
    text = f"1 validation error:\n  {{'type': '{kind}', 'loc': '{param}', 'msg': {message!r}}}"
    return RequestError(Problem(text, kind="Bad Request", param=param))


def parse_mode(query: dict[str, str]) -> str:
    """What a pause does to requests in flight."""
    mode = query.get("mode", "abort")
    if mode not in {"abort", "wait", "keep"}:
        raise _invalid("literal_error", "mode", "Input should be 'abort', 'wait' or 'keep'", part="query")
    return mode


def parse_level(query: dict[str, str]) -> int:
    """How deep an engine sleeps."""
    level = query.get("level", "1")
    if level not in {"0", "1", "2"}:
        raise _invalid("less_than_equal", "level", "Input should be less than or equal to 2", part="query")
    return int(level)


def parse_tokens(body: dict[str, Any]) -> list[int]:
    """The ids that are to become text; an unknown one has none."""
    if "tokens" not in body:
        raise _invalid("missing", "tokens", "Field required")
    tokens = body["tokens"]
    if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
        raise _invalid("list_type", "tokens", "Input should be a valid list")
    return [token for token in tokens if 0 <= token < VOCABULARY]


def check_model(body: dict[str, Any], settings: Settings) -> None:
    """Refuse a model that is not served; none at all means the served one."""
    model = body.get("model")
    if model not in {None, settings.model}:
        message = f"The model `{model}` does not exist. Valid aliases: {settings.model}."
        raise RequestError(Problem(message, kind="NotFoundError", param="model", code=404))


def parse_generation(path: str, body: dict[str, Any], settings: Settings) -> Generation:
    """Check a generation request in vLLM's order and take from it what the engine needs."""
    check_model(body, settings)
    prompt = _PROMPTS[path](body)
    _check_parameters(body)
    if len(prompt) > settings.max_model_len:
        raise _too_long(settings.max_model_len)
    max_tokens = _max_tokens(path, body, len(prompt), settings.max_model_len)
    logprobs = body.get("logprobs")
    return Generation(
        path=path,
        prompt=prompt,
        max_tokens=max_tokens,
        ignore_eos=bool(body.get("ignore_eos")),
        stream=bool(body.get("stream")),
        logprobs=logprobs is not None and logprobs is not False,
        token_id_names=bool(body.get("return_tokens_as_token_ids")),
        token_ids=bool(body.get("return_token_ids")),
        usage_chunk=bool((body.get("stream_options") or {}).get("include_usage")),
    )


def chat_prompt(body: dict[str, Any]) -> list[int]:
    """Prompt tokens of chat `messages`."""
    messages = body.get("messages")
    if "messages" not in body:
        raise _invalid("missing", "messages", "Field required")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise _invalid("list_type", "messages", "Input should be a valid list")
    if not messages:
        message = "Cannot apply chat template to an empty conversation. Provide at least one message."
        raise RequestError(Problem(message))
    return encode(render(messages, generation_prompt=body.get("add_generation_prompt", True)))


def text_prompt(body: dict[str, Any]) -> list[int]:
    """Prompt tokens of a completion's `prompt`: a text or token ids."""
    prompt = body.get("prompt")
    if not prompt:
        message = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"
        raise RequestError(Problem(message, param="prompt"))
    if isinstance(prompt, str):
        return encode(prompt)
    if not isinstance(prompt, list) or not all(isinstance(token, int) for token in prompt):
        raise _invalid("string_type", "prompt", "Input should be a valid string")
    unknown = next((token for token in prompt if not 0 <= token < VOCABULARY), None)
    if unknown is not None:
        raise RequestError(Problem(f"Token id {unknown} is out of vocabulary"))
    return prompt


def _input_prompt(body: dict[str, Any]) -> list[int]:
    items = body.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _invalid("missing", "input", "Field required")
    return encode(render(items))


_PROMPTS: dict[str, Callable[[dict[str, Any]], list[int]]] = {
    "/v1/chat/completions": chat_prompt,
    "/v1/completions": text_prompt,
    "/v1/responses": _input_prompt,
}

_Check = Callable[[Any], bool]
_PARAMETERS: dict[str, tuple[_Check, str, bool]] = {  # what is right, what is said if it is not, is the field named
    "n": (lambda value: value == 1, "n must be 1 here, got {}.", False),
    "temperature": (lambda value: value >= 0, "temperature must be non-negative, got {}.", True),
    "top_p": (lambda value: 0 < value <= 1, "top_p must be in (0, 1], got {}.", True),
    "logit_bias": (
        lambda bias: all(0 <= int(token) < VOCABULARY for token in bias),
        "token_id(s) in logit_bias contain out-of-vocab token ids: {}.",
        True,
    ),
    "tool_choice": (
        lambda choice: choice != "auto",
        '"{}" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        False,
    ),
}


def _check_parameters(body: dict[str, Any]) -> None:
    for name, (good, message, named) in _PARAMETERS.items():
        value = body.get(name)
        if value is None:
            continue
        try:
            accepted = good(value)
        except (TypeError, ValueError) as error:
            raise _invalid("type_error", name, "Input has a wrong type") from error
        if not accepted:
            raise RequestError(_about(name, value, message.format(value)) if named else Problem(message.format(value)))


def _about(name: str, value: Any, message: str) -> Problem:
    """A problem that names its parameter, as vLLM's own checks do."""
    return Problem(f"{message} (parameter={name}, value={value})", param=name)


def _too_long(limit: int) -> RequestError:
    # vLLM stops counting one token over the limit.
    message = (
        f"This model's maximum context length is {limit} tokens. However, your prompt contains at least {limit + 1} "
        "input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
        f"prompt. (parameter=input_tokens, value={limit + 1})"
    )
    return RequestError(Problem(message, param="input_tokens"))


def _max_tokens(path: str, body: dict[str, Any], prompt: int, limit: int) -> int:
    room = limit - prompt
    asked = body.get("max_completion_tokens") or body.get("max_output_tokens") or body.get("max_tokens")
    if asked is None:
        # The completions route inherits OpenAI's old default.
        return min(16, room) if path == "/v1/completions" else room
    if not isinstance(asked, int):
        raise _invalid("int_parsing", "max_tokens", "Input should be a valid integer")
    if asked < 1:
        raise RequestError(_about("max_tokens", asked, f"max_tokens must be at least 1, got {asked}."))
    if asked > limit:
        message = (
            f"max_tokens={asked} cannot be greater than max_model_len={limit}. Please request fewer output tokens."
        )
        raise RequestError(_about("max_tokens", asked, message))
    return min(asked, room)
