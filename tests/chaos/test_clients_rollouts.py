"""Rollouts have the shape of Gym's, and record whatever becomes of them."""

import asyncio
from itertools import count

import pytest

from gymproof.chaos.asking import CHAT_PATH
from gymproof.chaos.clients.rollouts import TOKENIZE_PATH, run_load, run_rollout
from gymproof.chaos.history import Call, Outcome, Rollout
from gymproof.chaos.tags import call_of, tag


def completion(text="hi", finish_reason="stop", **message):
    scored = [{"token": f"token_id:{100 + n}", "logprob": -0.5 * n} for n in range(2)]
    return {
        "choices": [
            {
                "message": {"role": "assistant", "content": text, **message},
                "finish_reason": finish_reason,
                "logprobs": {"content": scored},
            }
        ]
    }


class FakeClient:
    """Keeps what it was asked; answers from lists, or in the ordinary way when they are empty."""

    def __init__(self, chats=(), tokenized=()):
        self.chats, self.tokenized = list(chats), list(tokenized)
        self.asked = []

    async def chat(self, **body):
        self.asked.append(("chat", body))
        return answer(self.chats, completion())

    async def tokenize(self, **body):
        self.asked.append(("tokenize", body))
        return answer(self.tokenized, {"tokens": [1, 2, 3]})


def answer(scripted, ordinary):
    given = scripted.pop(0) if scripted else ordinary
    if isinstance(given, Exception):
        raise given
    return given


def roll(client, turns=3, **options):
    records = []
    settings = {"turns": turns, "phase": "fault", "max_tokens": 8, "record": records.append} | options
    rollout = asyncio.run(run_rollout(client, "r7", **settings))
    return rollout, records


def test_each_turn_is_a_chat_call_and_a_tokenize_call_with_the_same_messages():
    client = FakeClient()
    roll(client, turns=2)

    assert [kind for kind, _ in client.asked] == ["chat", "tokenize"] * 2
    chats = [body for kind, body in client.asked if kind == "chat"]
    tokenized = [body for kind, body in client.asked if kind == "tokenize"]
    assert [body["messages"] for body in tokenized] == [body["messages"] for body in chats]
    assert set(tokenized[0]) == {"model", "messages"}


def test_the_messages_of_a_turn_are_an_exact_prefix_of_the_next_turns():
    client = FakeClient()
    roll(client, turns=3)

    first, second, third = [body["messages"] for kind, body in client.asked if kind == "chat"]
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    assert len(third) - len(second) == 2


def test_a_reply_joins_the_history_with_the_token_ids_that_training_needs():
    client = FakeClient(chats=[completion(reasoning_content="hm")])
    roll(client, turns=2)

    reply = client.asked[2][1]["messages"][-2]
    assert reply == {
        "role": "assistant",
        "content": "hi",
        "tool_calls": [],
        "reasoning_content": "hm",
        "reasoning": "hm",
        "prompt_token_ids": [1, 2, 3],
        "generation_token_ids": [100, 101],
        "generation_log_probs": [0.0, -0.5],
    }


def test_chat_calls_ask_for_token_ids_as_gym_does():
    client = FakeClient()
    roll(client, turns=1)

    body = client.asked[0][1]
    assert (body["logprobs"], body["top_logprobs"], body["return_tokens_as_token_ids"]) == (True, 0, True)
    assert body["max_tokens"] == 8


def test_the_newest_user_message_carries_the_tag_of_the_call():
    client = FakeClient()
    roll(client, turns=2)

    newest = [body["messages"][-1]["content"] for _, body in client.asked]
    assert [call_of(text.encode()) for text in newest] == ["r7.t0", "r7.t0", "r7.t1", "r7.t1"]
    assert newest[0].startswith(tag("r7.t0"))


def test_the_prompts_follow_from_the_seed_and_the_rollout_alone():
    one, same, other = FakeClient(), FakeClient(), FakeClient()
    roll(one)
    roll(same)
    roll(other, seed=1)

    assert one.asked == same.asked
    assert one.asked != other.asked


def test_a_rollout_records_its_calls_and_then_itself():
    rollout, records = roll(FakeClient(), turns=1)

    assert [(type(record), getattr(record, "path", "")) for record in records] == [
        (Call, CHAT_PATH),
        (Call, TOKENIZE_PATH),
        (Rollout, ""),
    ]
    assert records[-1] == rollout
    assert (rollout.completed, rollout.turns_done, rollout.error) == (True, 1, "")
    assert all(record.outcome is Outcome.RETURNED for record in records[:2])


def test_what_the_client_raises_loses_the_rollout_and_nothing_else():
    rollout, records = roll(FakeClient(chats=[completion(), ValueError("500 from the router")]))

    assert (rollout.completed, rollout.turns_done) == (False, 1)
    assert rollout.error == "turn 1: ValueError: 500 from the router"
    lost = [record for record in records if isinstance(record, Call)][-1]
    assert (lost.call, lost.outcome, lost.error) == ("r7.t1", Outcome.RAISED, "ValueError: 500 from the router")


def test_an_error_carries_the_text_that_the_client_kept_of_the_answer():
    refused = ValueError("409, message='Conflict'")
    refused.response_content = b'{"error": {"message": "no shard"}}'
    rollout, _ = roll(FakeClient(chats=[refused]))

    assert rollout.error.endswith('ValueError: 409, message=\'Conflict\': {"error": {"message": "no shard"}}')


@pytest.mark.parametrize(
    ("unusable", "why"),
    [
        (completion(finish_reason="abort"), "finish_reason is 'abort'"),
        ({"error": {"message": "boom"}}, "an error object came as a success"),
        ({"choices": []}, "no choice with"),
        ({"choices": [{"message": {}, "finish_reason": "stop", "logprobs": None}]}, "no choice with"),
        (None, "no choice with"),
    ],
)
def test_an_answer_that_gym_could_not_use_loses_the_rollout(unusable, why):
    rollout, records = roll(FakeClient(chats=[unusable]))

    assert why in rollout.error
    assert rollout.turns_done == 0
    assert records[0].outcome is Outcome.RETURNED


@pytest.mark.parametrize("unusable", [{"error": "boom"}, [], None])
def test_tokenize_decides_a_rollout_too(unusable):
    rollout, _ = roll(FakeClient(tokenized=[unusable]))

    assert "/tokenize gave no tokens" in rollout.error


def test_a_cancelled_rollout_is_recorded_as_such():
    class Waiting(FakeClient):
        async def chat(self, **_body):
            self.called.set()
            await asyncio.Event().wait()

    records = []

    async def give_up():
        client = Waiting()
        client.called = asyncio.Event()
        rolling = asyncio.create_task(
            run_rollout(client, "r0", turns=1, phase="fault", max_tokens=8, record=records.append)
        )
        async with asyncio.timeout(5):
            await client.called.wait()
        rolling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rolling

    asyncio.run(give_up())

    call, rollout = records
    assert call.outcome is Outcome.CANCELLED
    assert (rollout.error, rollout.completed) == ("cancelled", False)


def test_a_load_runs_all_rollouts_and_no_more_at_once_than_allowed():
    class Counting(FakeClient):
        running = most = 0

        async def chat(self, **_body):
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0)
            self.running -= 1
            return completion()

    client, records = Counting(), []
    rollouts = asyncio.run(
        run_load(
            client, rollouts=7, turns=2, concurrency=3, phase="fault", max_tokens=8, record=records.append, name="load"
        )
    )

    assert [rollout.rollout for rollout in rollouts] == [f"load-{n}" for n in range(7)]
    assert all(rollout.completed for rollout in rollouts)
    assert client.most == 3
    assert len(records) == 7 * (2 * 2 + 1)


def test_a_load_is_named_after_its_phase_by_default():
    records = []
    rollouts = asyncio.run(
        run_load(
            FakeClient(), rollouts=1, turns=1, concurrency=1, phase="baseline", max_tokens=8, record=records.append
        )
    )

    assert (rollouts[0].rollout, rollouts[0].phase) == ("baseline-0", "baseline")


def test_a_lost_rollout_does_not_stop_the_others():
    class Flaky(FakeClient):
        numbers = count()

        async def chat(self, **_body):
            if next(self.numbers) == 0:
                raise ConnectionError("reset")
            return completion()

    rollouts = asyncio.run(
        run_load(Flaky(), rollouts=3, turns=1, concurrency=1, phase="fault", max_tokens=8, record=lambda _: None)
    )

    assert [rollout.completed for rollout in rollouts] == [False, True, True]
