"""What the probes conclude from what they saw, without a router."""

import asyncio

import pytest

from gymproof.chaos.asking import post
from gymproof.chaos.conform.findings import Group, Word
from gymproof.chaos.conform.probes import headers, paths, payload, samples
from gymproof.chaos.conform.probes.backends import listening, plain
from gymproof.chaos.conform.probes.bench import Reply, call, chat, flaw, tally
from gymproof.chaos.conform.probes.json_paths import differences
from gymproof.chaos.conform.probes.results import Notes, Result, safe
from gymproof.chaos.history import Ending
from gymproof.chaos.http1 import Response
from gymproof.validators import load_contract

GYM = load_contract("nemo-gym")


def changes(sent: str, got: str, aliases=()) -> list[str]:
    return [str(change) for change in differences(sent.encode(), got.encode(), aliases)]


@pytest.mark.parametrize(
    ("sent", "got", "said"),
    [
        ('{"a": [1, {"b": 2}]}', '{ "a":[1,{"b":2}] }', []),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', []),
        ('{"a": {"b": [7]}, "c": 1}', '{"c": 1}', ['a dropped (was {"b": [7]})']),
        ('{"a": 1}', '{"a": 1, "b": {"c": 2}}', ['b added ({"c": 2})']),
        ('{"a": [{"x": "yes"}]}', '{"a": [{"y": "yes"}]}', ["a[0].x moved to a[0].y"]),
        ('{"a": [1, 2]}', '{"b": {"a": [1, 2]}}', ["a moved to b.a", 'b added ({"a": [1, 2]})']),
        ('{"a": true}', '{"b": true}', ["a dropped (was true)", "b added (true)"]),
        ('{"a": 1.0}', '{"a": 1}', ["a rewritten: 1.0 became 1"]),
        ('{"a": 1e-07}', '{"a": 1e-7}', ["a rewritten: 1e-07 became 1e-7"]),
        ('{"a": 0.1000000000000000055}', '{"a": 0.1}', ["a rewritten: 0.1000000000000000055 became 0.1"]),
        ('{"a": 9007199254740993}', '{"a": 9007199254740992}', ["a changed: 9007199254740993 became 9007199254740992"]),
        ('{"a": 0.12345678901234568}', '{"a": 0.12345679}', ["a changed: 0.12345678901234568 became 0.12345679"]),
        ('{"a": null}', '{"a": ""}', ['a changed: null became ""']),
        ('{"a": "1"}', '{"a": 1}', ['a changed: "1" became 1']),
        ('{"a": [1, 2, 3]}', '{"a": [1, 2]}', ["a changed: [1, 2, 3] became [1, 2]"]),
        ('"\\u00e9"', '"é"', []),
    ],
)
def test_a_difference_is_named_by_its_path(sent: str, got: str, said: list[str]):
    assert changes(sent, got) == said


def test_a_number_under_another_name_has_moved_only_where_both_names_mean_one_thing():
    sent, got = '{"max_tokens": 16}', '{"max_completion_tokens": 16}'

    assert len(changes(sent, got)) == 2
    assert changes(sent, got, {("max_tokens", "max_completion_tokens")}) == [
        "max_tokens moved to max_completion_tokens"
    ]


@pytest.mark.parametrize(
    ("sent", "got", "word"),
    [
        ('{"seed": 7}', '{"seed": 7}', Word.SAFE),
        ('{"seed": 7}', '{"seed":7}', Word.BOUNDED),
        ('{"seed": 7, "metadata": {}}', '{"seed":7}', Word.BOUNDED),
        ('{"seed": 7, "x_new": 1}', '{"seed":7}', Word.BOUNDED),
        ('{"seed": 7, "content": null}', '{"seed":7}', Word.BOUNDED),
        ('{"seed": 7}', '{"seed":7,"stream":false}', Word.BOUNDED),
        ('{"seed": 7}', "{}", Word.UNSAFE),
        ('{"seed": 7}', '{"seed":8}', Word.UNSAFE),
        ('{"tools": [{"function": {"strict": false}}]}', '{"tools":[{"function":{}}]}', Word.UNSAFE),
        ('{"seed": 7}', '{"seed":', Word.UNSAFE),
    ],
)
def test_what_training_needs_decides_the_word(sent: str, got: str, word: Word):
    result = payload.compare("the request", sent.encode(), got.encode(), {"metadata"})

    assert result.word is word
    assert bool(result.right) is (word is not Word.SAFE)


def test_where_bytes_begin_to_differ_both_sides_are_shown():
    lines = payload.excerpts(b"x" * 100 + b"left", b"x" * 100 + b"right")

    assert "byte 100 of 104 sent" in lines[0]
    assert "xxleft'" in lines[0]
    assert "xxright'" in lines[1]


def test_events_are_the_data_of_a_stream_however_it_is_framed():
    assert payload.events(b": hi\r\n\r\ndata: {}\r\n\r\ndata:[DONE]\n\n") == [b"{}", b"[DONE]"]


@pytest.mark.parametrize("name", [*samples.REQUESTS])
def test_a_sample_is_json_with_the_tag_of_its_call(name: str):
    body = samples.request(name, "call-1")

    assert differences(body, body) == []
    assert b"[gymproof:call=call-1]" in body
    assert b"@" not in body


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(Ending.COMPLETE, 0.1, 200), ""),
        (Reply(Ending.COMPLETE, 0.1, 500), ""),
        (Reply(Ending.COMPLETE, 0.1, 409), ""),
        (Reply(Ending.COMPLETE, 0.1, 503), "503, which nemo-gym retries without bound"),
        (Reply(Ending.COMPLETE, 0.1, 307), "307, which leads the client past the router"),
        (Reply(Ending.COMPLETE, 0.1, 777), "777, which is no status of HTTP"),
        (Reply(Ending.TRUNCATED, 0.1, 200), "an answer cut in the middle: one try, and the rollout is lost"),
        (Reply(Ending.PENDING, 9.0), "no whole answer in time"),
    ],
)
def test_what_no_client_must_get_is_named(reply: Reply, said: str):
    assert flaw(GYM, reply) == said


def test_a_tally_tells_whole_answers_from_cut_ones():
    replies = [Reply(Ending.COMPLETE, 0.1, 200), Reply(Ending.TRUNCATED, 0.1, 200), Reply(Ending.COMPLETE, 0.1, 200)]

    assert tally(replies) == "200 x2, truncated x1"


@pytest.mark.parametrize(
    ("path", "steers"),
    [
        ("/pause", True),
        ("/v1/../pause?mode=abort", True),
        ("/%70ause", True),
        ("//sleep/", True),
        ("/v1/pause", False),
        ("/v1/chat/completions", False),
        ("/paused", False),
    ],
)
def test_a_path_is_what_a_shard_makes_of_it(path: str, steers: bool):
    assert paths._steers(path) is steers


@pytest.mark.parametrize(
    ("sent", "got", "arrives"),
    [
        ((b"content-type", b"application/json"), b"application/json; charset=utf-8", True),
        ((b"content-type", b"application/json"), b"text/plain", False),
        (headers._TRACEPARENT, headers._TRACEPARENT[1][:36] + b"b7ad6b7169203331-00", True),
        (headers._TRACEPARENT, b"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01", False),
        ((b"Cookie", b"session=abc; theme=dark"), b"session=abc", False),
    ],
)
def test_a_header_arrives_if_what_a_router_may_not_change_is_there(sent, got, arrives):
    assert headers._arrives(((sent[0], got),), sent) is arrives
    assert not headers._arrives((), sent)


def test_a_check_that_crashes_or_does_not_end_is_unknown_and_never_a_pass():
    async def crash() -> Result:
        raise LookupError("choices")

    async def hang() -> Result:
        await asyncio.Event().wait()
        return safe("never")

    async def run() -> Notes:
        notes = Notes(Group.PATHS, ("crash", "hang", "left out", "good"))
        await notes.take("crash", crash(), 5.0)
        await notes.take("hang", hang(), 0.01)
        await notes.take("good", asyncio.sleep(0, safe("well")), 5.0)
        return notes

    findings = asyncio.run(run()).close("the router ended")

    assert [finding.word for finding in findings] == [Word.UNKNOWN, Word.UNKNOWN, Word.UNKNOWN, Word.SAFE]
    assert [finding.seen for finding in findings] == [
        "the check failed: LookupError: choices",
        "the check did not come to an end in 0.01 s",
        "the router ended",
        "well",
    ]


def test_a_check_that_no_group_has_is_an_error():
    with pytest.raises(ValueError, match=r"unknown check 'colour' of .*; known: size"):
        Notes(Group.LOAD, ("size",)).note("colour", safe("red"), 0.0)


def test_a_recording_shard_keeps_every_byte_and_its_port_while_it_is_down():
    async def run():
        scripts = {"now": plain(Response(201, (), b"made"))}
        async with listening(1, scripts) as (shard,):
            request = post(shard.url, chat("now"))
            replies = [await call(shard.url, request, within_s=5.0)]
            await shard.down()
            replies.append(await call(shard.url, request, within_s=5.0))
            await shard.up()
            replies.append(await call(shard.url, post(shard.url, chat("other")), within_s=5.0))
            return request, replies, shard.deliveries

    request, replies, deliveries = asyncio.run(run())

    assert [reply.status for reply in replies] == [201, None, 200]
    assert replies[1].ending is Ending.REFUSED
    assert [delivery.call for delivery in deliveries] == ["now", "other"]
    assert deliveries[0].request.wire == request
    assert deliveries[0].ended is not None


def test_a_recording_shard_notices_that_it_is_left():
    async def run():
        scripts = {"long": plain(Response(200, (), b""), after_s=60.0)}
        async with listening(1, scripts) as (shard,):
            reply = await call(shard.url, post(shard.url, chat("long")), within_s=0.2)
            for _ in range(500):
                if shard.deliveries[0].ended:
                    break
                await asyncio.sleep(0.01)
            return reply, shard.deliveries[0]

    reply, delivery = asyncio.run(run())

    assert reply.ending is Ending.PENDING
    assert delivery.left
