"""The answer table, end to end: what a backend does, and what the client then gets."""

import asyncio
import gzip
import zlib

import pytest

GZIPPED = "Content-Encoding: gzip"
ABORTED = b'{"choices":[{"message":{"content":"par"},"finish_reason":"abort"}]}'


def one_bad_of_two(kit, script, **settings):
    """The bad shard is asked first; the answer of the other one saves the request."""

    async def story():
        async with kit.Stage(kit.serve, script, **settings) as stage:
            reply = await stage.ask(b'{"n":1}')
            bad = stage.router.fleet.shards[1]
            seen = [len(backend.exchanges) for backend in stage.backends]
            return reply, seen, stage.states()[1], len(bad.record.strikes)

    return asyncio.run(story())


def all_bad(kit, script, **settings):
    async def story():
        async with kit.Stage(script, script, script, **settings) as stage:
            reply = await stage.ask(b'{"n":1}')
            await stage.until(lambda: stage.in_flight() == 0, "nothing is in flight")
            return reply, [len(backend.exchanges) for backend in stage.backends]

    return asyncio.run(story())


def bad_answers(kit):
    """Name -> (script, whether it is a strike)."""
    good = kit.completion
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    return {
        "closes": (kit.close, True),
        "resets": (kit.reset, True),
        "cut in the head": (kit.say(b"HTTP/1.1 200 OK\r\nContent-Le", then_close=True), True),
        "cut by length": (kit.say(head + b"Content-Length: 500\r\n\r\n" + good, then_close=True), True),
        "cut in a chunk": (kit.say(head + b"Transfer-Encoding: chunked\r\n\r\n50\r\n{", then_close=True), True),
        "no last chunk": (
            kit.say(head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(good), good), then_close=True),
            True,
        ),
        "half JSON until close": (kit.say(head + b"\r\n" + good[:20], then_close=True), True),
        "empty": (kit.say(kit.answer(200, b"")), True),
        "204": (kit.say(b"HTTP/1.1 204 No Content\r\n\r\n"), True),
        "HTML": (kit.say(kit.answer(200, b"<html></html>")), True),
        "NaN": (kit.say(kit.answer(200, b'{"choices":[],"x":NaN}')), True),
        "an error in a 200": (kit.say(kit.answer(200, b'{"error":{"message":"x"}}')), True),
        "br": (kit.say(kit.answer(200, good, "Content-Encoding: br")), True),
        "not gzip": (kit.say(kit.answer(200, good, GZIPPED)), True),
        "cut gzip": (kit.say(kit.answer(200, gzip.compress(good)[:-6], GZIPPED)), True),
        "garbage": (kit.say(b"\x00\x01garbage\r\n\r\n"), True),
        "two lengths": (kit.say(head + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"), True),
        "length and chunks": (
            kit.say(head + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
            True,
        ),
        "500": (kit.say(kit.answer(500, b'{"error":{}}')), True),
        "502": (kit.say(kit.answer(502, b"bad gateway")), True),
        "504": (kit.say(kit.answer(504, b"")), True),
        "520": (kit.say(kit.answer(520, b"")), True),
        "redirect": (kit.say(kit.answer(307, b"", "Location: http://127.0.0.1:1/")), True),
        "429": (kit.say(kit.answer(429, b"", "Retry-After: 60")), False),
        "503": (kit.say(kit.answer(503, b"")), False),
        "abort": (kit.say(kit.answer(200, ABORTED)), False),
    }


NAMES = [
    "closes", "resets", "cut in the head", "cut by length", "cut in a chunk", "no last chunk", "half JSON until close",
    "empty", "204", "HTML", "NaN", "an error in a 200", "br", "not gzip", "cut gzip", "garbage", "two lengths",
    "length and chunks", "500", "502", "504", "520", "redirect", "429", "503", "abort",
]  # fmt: skip


def test_the_list_of_bad_answers_is_whole(kit):
    assert list(bad_answers(kit)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_answer_sends_the_request_to_another_shard(kit, name):
    script, is_strike = bad_answers(kit)[name]
    reply, seen, state, strikes = one_bad_of_two(kit, script)

    assert (reply.status, reply.body) == (200, kit.completion)
    assert seen == [1, 1]
    assert (state, strikes) == (("suspect", 1) if is_strike else ("healthy", 0))


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_answer_from_every_shard_becomes_one_500_after_two_attempts(kit, name):
    reply, seen = all_bad(kit, bad_answers(kit)[name][0])

    assert reply.status == 500
    assert reply.json["error"].keys() == {"message", "type", "code", "param"}
    assert reply.json["error"]["code"] == reply.reason
    assert sum(seen) == 2
    assert max(seen) == 1


def test_a_500_of_the_backends_names_its_status(kit):
    reply, _ = all_bad(kit, kit.say(kit.answer(503, b"")))

    assert reply.headers["x-router-upstream-status"] == "503"
    assert reply.reason == "busy"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 422, 499])
def test_a_deliberate_4xx_passes_byte_for_byte_and_changes_nothing(kit, status):
    body = b'{ "error" : {"message":"context length" } }\n'
    reply, seen, state, strikes = one_bad_of_two(kit, kit.say(kit.answer(status, body)))

    assert (reply.status, reply.body) == (status, body)
    assert seen == [0, 1]
    assert (state, strikes) == ("healthy", 0)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b'{"choices":[]}')),
        ("deflate", zlib.compress(b'{"choices":[]}')),
        ("deflate", zlib.compress(b'{"choices":[]}', wbits=-15)),
        ("deflate, gzip", gzip.compress(zlib.compress(b'{"choices":[]}'))),
    ],
    ids=["gzip", "zlib", "raw deflate", "both"],
)
def test_a_compressed_answer_passes_as_it_came(kit, coding, body):
    reply, *_ = one_bad_of_two(kit, kit.say(kit.answer(200, body, f"Content-Encoding: {coding}")))

    assert (reply.status, reply.body) == (200, body)
    assert reply.headers["content-encoding"] == coding


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_every_framing_reaches_the_client_with_a_length(kit, framing):
    head, good = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", kit.completion
    chunked = b"Transfer-Encoding: chunked\r\n\r\n3\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (
        good[:3],
        len(good) - 3,
        good[3:],
    )
    script = kit.say(head + (chunked if framing == "chunked" else b"\r\n" + good), then_close=True)
    reply, seen, *_ = one_bad_of_two(kit, script)

    assert (reply.status, reply.body) == (200, good)
    assert reply.headers["content-length"] == str(len(good))
    assert seen == [0, 1]


def test_a_herald_before_the_answer_is_skipped(kit):
    reply, seen, *_ = one_bad_of_two(kit, kit.say(b"HTTP/1.1 100 Continue\r\n\r\n" + kit.answer()))

    assert (reply.status, seen) == (200, [0, 1])


def test_silence_ends_at_the_deadline_with_one_delivery(kit):
    async def story():
        async with kit.Stage(kit.serve, kit.hang, backend_timeout_s=0.3) as stage:
            started = asyncio.get_running_loop().time()
            reply = await stage.ask()
            elapsed = asyncio.get_running_loop().time() - started
            silent = stage.backends[1]
            await stage.until(lambda: silent.abandoned == 1, "the silent backend has lost its connection")
            again = await stage.ask()
            return reply, elapsed, [len(backend.exchanges) for backend in stage.backends], stage.states(), again

    reply, elapsed, seen, states, again = asyncio.run(story())

    assert (reply.status, reply.reason) == (500, "deadline")
    assert 0.25 < elapsed < 1.3
    assert states == ["healthy", "suspect"]
    assert again.status == 200  # the client's own retry does not land there again
    assert seen == [1, 1]


def test_a_trickle_ends_at_the_deadline(kit):
    async def trickle(exchange):
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            exchange.send(b" ")
            await asyncio.sleep(0.02)

    async def story():
        async with kit.Stage(trickle, backend_timeout_s=0.3) as stage:
            return await stage.ask()

    reply = asyncio.run(story())

    assert (reply.status, reply.reason) == (500, "deadline")


def test_a_refused_connection_costs_no_attempt(kit):
    async def story():
        async with kit.Stage(*[kit.serve] * 4) as stage:
            for backend in stage.backends[:3]:
                await backend.stop()
            replies = [await stage.ask() for _ in range(4)]
            return replies, stage.states()

    replies, states = asyncio.run(story())

    assert [reply.status for reply in replies] == [200] * 4
    assert states[3] == "healthy"


def test_with_every_connection_refused_the_answer_becomes_409(kit):
    async def story():
        async with kit.Stage(kit.serve, kit.serve, eject_after=1) as stage:
            for backend in stage.backends:
                await backend.stop()
            return await stage.ask(), await stage.ask()

    first, second = asyncio.run(story())

    assert (first.status, first.reason) == (409, "no_shard")
    assert (second.status, second.reason) == (409, "no_shard")


def test_a_hold_waits_for_a_shard_and_not_longer(kit):
    async def story():
        async with kit.Stage(kit.serve, health="pushed", no_shard_hold_s=0.4) as stage:
            stage.router.set_serving([])
            late = await stage.ask()
            asyncio.get_running_loop().call_later(0.1, stage.router.set_serving, [stage.backends[0].url])
            return late, await stage.ask()

    late, in_time = asyncio.run(story())

    assert (late.status, late.reason) == (409, "no_shard")
    assert in_time.status == 200


def test_the_configured_statuses_are_used(kit):
    async def story():
        settings = {"backend_failure_status": 500, "no_healthy_backend_status": 418, "health": "pushed"}
        async with kit.Stage(kit.serve, **settings) as stage:
            stage.router.set_serving([])
            return await stage.ask()

    assert asyncio.run(story()).status == 418


@pytest.mark.parametrize("size", [0, 1, 65_535, 1_048_577, 5_000_000])
def test_bodies_arrive_byte_for_byte_in_both_directions(kit, size):
    sent = b'{"x":"' + bytes(range(32, 34)) * (size // 2) + b'"}' if size else b""
    returned = b'{"choices":[], "pad":"' + b"y" * size + b'"}'

    async def story():
        async with kit.Stage(kit.close, kit.say(kit.answer(200, returned))) as stage:
            replies = [await stage.ask(sent), await stage.ask(sent)]
            return replies, [e.body for backend in stage.backends for e in backend.exchanges]

    replies, received = asyncio.run(story())

    assert [reply.body for reply in replies] == [returned, returned]
    assert set(received) == {sent}
    assert len(received) == 3  # the failed-over attempt carried it too
