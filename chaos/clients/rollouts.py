"""Multi-turn rollouts, as NeMo-Gym's SimpleAgent and VLLMModel make them.

Each turn is one chat call and one `/tokenize` call with the same messages; the reply joins the history with the token
ids that training needs, so the messages of turn k are an exact prefix of those of turn k+1. What the client raises
loses the rollout and is recorded, never raised.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..asking import CHAT_PATH, MODEL
from ..history import Call, Outcome, Record, Rollout
from ..tags import tag
from .base import GymClient

TOKENIZE_PATH = "/tokenize"
FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})  # OpenAI's literals
_SENTENCE = "the reward of a long rollout is found at its end so keep every turn"

Recorder = Callable[[Record], None]
Message = dict[str, Any]


class UnusableAnswerError(Exception):
    """A shard's or router's whole answer that the real chain cannot build a turn from."""


@dataclass(frozen=True, slots=True)
class _Wire:
    """What the calls of one rollout share."""

    client: GymClient
    rollout: str
    record: Recorder

    async def call(self, send: Callable[..., Awaitable[Any]], call: str, path: str, body: dict[str, Any]) -> Any:
        """One client call, recorded however it ends."""
        started = time.monotonic()
        outcome, error = Outcome.CANCELLED, ""
        try:
            answer = await send(**body)
            outcome = Outcome.RETURNED
        except Exception as raised:
            outcome, error = Outcome.RAISED, describe(raised)
            raise
        finally:
            self.record(Call(call, path, self.rollout, started, time.monotonic(), outcome, error))
        return answer


async def run_rollout(
    client: GymClient,
    rollout_id: str,
    *,
    turns: int,
    phase: str,
    max_tokens: int,
    record: Recorder,
    seed: int = 0,
) -> Rollout:
    """Run one rollout of `turns` turns and record its calls and itself.

    The prompts follow from (seed, rollout_id) alone. A failed call or an unusable answer ends it, with the reason in
    `Rollout.error`. Only cancellation is raised, after what was cancelled is recorded.
    """
    wire = _Wire(client, rollout_id, record)
    words = random.Random(f"{seed}:{rollout_id}")  # noqa: S311  # reproducible prompts, not secrets
    messages: list[Message] = [{"role": "system", "content": "Answer in one short line."}]
    started, done, error = time.monotonic(), 0, "cancelled"
    try:
        for turn in range(turns):
            call = f"{rollout_id}.t{turn}"
            messages.append({"role": "user", "content": f"{tag(call)} {_prompt(words)}"})
            messages.append(await _turn(wire, call, chat_body(messages, max_tokens)))
            done += 1
        error = ""
    except Exception as raised:  # noqa: BLE001  # whatever the client raises loses the rollout, nothing else does
        error = f"turn {done}: {describe(raised)}"
    finally:
        rollout = Rollout(rollout_id, phase, started, time.monotonic(), turns, done, error)
        record(rollout)
    return rollout


async def run_load(
    client: GymClient,
    *,
    rollouts: int,
    turns: int,
    concurrency: int,
    phase: str,
    max_tokens: int,
    record: Recorder,
    seed: int = 0,
    name: str | None = None,
) -> list[Rollout]:
    """Run rollouts `{name}-0` .. `{name}-{rollouts-1}`, at most `concurrency` at once; `name` is the phase by default.

    Two loads of one run need two names: a rollout's id is the root of its call tags.
    """
    slots = asyncio.Semaphore(concurrency)

    async def one(rollout_id: str) -> Rollout:
        async with slots:
            return await run_rollout(
                client,
                rollout_id,
                turns=turns,
                phase=phase,
                seed=seed,
                max_tokens=max_tokens,
                record=record,
            )

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(f"{name or phase}-{index}")) for index in range(rollouts)]
    return [task.result() for task in tasks]


def chat_body(messages: list[Message], max_tokens: int) -> dict[str, Any]:
    """The chat request of one turn, with the fields that Gym sets when it wants token ids."""
    return {
        "model": MODEL,
        "messages": list(messages),
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": max_tokens,
        "parallel_tool_calls": False,
        "logprobs": True,
        "top_logprobs": 0,
        "return_tokens_as_token_ids": True,
    }


def usable_choice(answer: Any) -> dict[str, Any]:
    """The first choice of a chat answer that a turn can be built from, else UnusableAnswerError with the reason."""
    match answer:
        case {"choices": [{"message": {}, "finish_reason": str(), "logprobs": {"content": list()}} as choice, *_]}:
            if choice["finish_reason"] not in FINISH_REASONS:
                raise UnusableAnswerError(f"finish_reason is {choice['finish_reason']!r}")
            return dict(choice)
        case {"error": error}:
            raise UnusableAnswerError(f"an error object came as a success: {str(error)[:200]}")
        case _:
            raise UnusableAnswerError(f"no choice with message, finish_reason and logprobs: {str(answer)[:200]}")


def describe(error: BaseException) -> str:
    """One line on what a client raised, with the answer's text where the client kept it."""
    text = getattr(error, "response_content", b"").decode(errors="replace")[:200]
    line = f"{type(error).__name__}: {error}"[:400]
    return f"{line}: {text}" if text else line


async def _turn(wire: _Wire, call: str, body: dict[str, Any]) -> Message:
    answer = await wire.call(wire.client.chat, call, CHAT_PATH, body)
    choice = usable_choice(answer)
    prompt = {"model": body["model"], "messages": body["messages"]}
    tokens = await wire.call(wire.client.tokenize, call, TOKENIZE_PATH, prompt)
    if not isinstance(tokens, Mapping) or not isinstance(tokens.get("tokens"), list):
        raise UnusableAnswerError(f"/tokenize gave no tokens: {str(tokens)[:200]}")
    return _assistant(choice, tokens["tokens"])


def _assistant(choice: dict[str, Any], prompt_token_ids: list[int]) -> Message:
    """The reply as the real chain puts it into the next request, token ids and all."""
    message = choice["message"]
    scored = choice["logprobs"]["content"]
    reply: Message = {"role": "assistant", "content": message.get("content"), "tool_calls": []}
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning:
        reply |= {"reasoning_content": reasoning, "reasoning": reasoning}
    return reply | {
        "prompt_token_ids": prompt_token_ids,
        "generation_token_ids": [int(token["token"].removeprefix("token_id:")) for token in scored],
        "generation_log_probs": [token["logprob"] for token in scored],
    }


def _prompt(words: random.Random) -> str:
    return " ".join(words.choices(_SENTENCE.split(), k=24))
