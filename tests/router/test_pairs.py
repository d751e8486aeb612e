"""Two legs as one attempt, on scripted servers: who is asked what, and what a failure in either leg leads to."""

import asyncio
from contextlib import asynccontextmanager

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

PARAMS = b'{"remote_host" : "p", "remote_block_ids": [[1, 2]]}'
PREFILLED = b'{"choices":[{"finish_reason":"length"}],"kv_transfer_params": %b}'
BODY = b'{"model":"tiny",  "messages":[], "max_tokens":7}'


def prefilled(kit, params=PARAMS):
    return kit.say(kit.answer(200, PREFILLED % params))


@asynccontextmanager
async def pair(kit, prefill, *decode, **settings):
    """A stage of decode servers whose router also has prefill servers; both with the servers that were asked."""
    servers = [kit.Backend(script) for script in prefill]
    for server in servers:
        await server.start()
    urls = [server.url for server in servers]
    try:
        async with kit.Stage(*decode, prefill_backends=urls, **settings) as stage:
            yield stage, servers
            await stage.until(lambda: not busy(stage), "no count is left")
    finally:
        for server in servers:
            await server.stop()


def busy(stage):
    return stage.in_flight() + sum(shard.in_flight for shard in stage.router.prefill.shards)


def bodies(servers):
    return [orjson.loads(exchange.body) for server in servers for exchange in server.exchanges]


def header(exchange, name):
    lines = [line.partition(b":") for line in exchange.head.split(b"\r\n")]
    return [value.strip() for key, _, value in lines if key.lower() == name]


def test_the_prompt_is_computed_on_one_server_and_the_answer_on_another(kit):
    async def story():
        async with pair(kit, [prefilled(kit)], kit.serve) as (stage, servers):
            reply = await stage.ask(BODY, kit.chat, "POST", "X-Request-Id: mine")
            return reply, servers[0].exchanges, stage.backends[0].exchanges, stage.router.tally.pairings

    reply, (first,), (second,), pairings = asyncio.run(story())

    assert reply.status == 200
    assert first.body.startswith(BODY[:-1])
    assert orjson.loads(first.body)["max_tokens"] == 1
    assert second.body == BODY[:-1] + b',"kv_transfer_params":' + PARAMS + b"}"
    ids = header(first, b"x-request-id") + header(second, b"x-request-id")
    assert len(ids) == 2
    assert len(set(ids)) == 1
    assert ids[0].startswith(b"mine-")
    assert pairings == {"paired": 1}


@pytest.mark.parametrize(
    ("prefill", "result"),
    [(b"null", "missing_params"), (b'{"transfer_mode":"push"}', "push_mode")],
)
def test_a_prefill_answer_without_use_is_counted_and_the_decode_server_does_it_all(kit, prefill, result):
    async def story():
        async with pair(kit, [prefilled(kit, prefill)], kit.serve) as (stage, _):
            return (await stage.ask(BODY)).status, stage.backends[0].exchanges[0].body, stage.router.tally.pairings

    assert asyncio.run(story()) == (200, BODY, {result: 1})


def test_parameters_of_a_clients_own_are_refused_and_reach_nobody(kit):
    async def story():
        async with pair(kit, [prefilled(kit)], kit.serve) as (stage, servers):
            reply = await stage.ask(b'{"kv_transfer_params":{"remote_host":"evil"}}')
            return reply, servers[0].exchanges, stage.backends[0].exchanges

    reply, first, second = asyncio.run(story())

    assert (reply.status, reply.reason, first, second) == (422, "bad_request", [], [])


def test_a_prefill_servers_refusal_is_the_answer(kit):
    async def story():
        async with pair(kit, [kit.say(kit.answer(400, b'{"error":{"message":"no"}}'))], kit.serve) as (stage, _):
            reply = await stage.ask(BODY)
            return reply.status, reply.body, stage.backends[0].exchanges

    assert asyncio.run(story()) == (400, b'{"error":{"message":"no"}}', [])


@pytest.mark.parametrize("failing", ["close", "reset", "error", "hang up"])
def test_a_failed_prefill_leg_is_made_good_without_one_on_the_same_decode_server(kit, failing):
    scripts = {"close": kit.close, "reset": kit.reset, "error": kit.say(kit.answer(500)), "hang up": kit.say(b"x")}

    async def story():
        async with pair(kit, [scripts[failing]], kit.serve) as (stage, _):
            status = (await stage.ask(BODY)).status
            return status, bodies(stage.backends), stage.states()

    assert asyncio.run(story()) == (200, [orjson.loads(BODY)], ["healthy"])


def test_both_legs_are_done_again_when_a_decode_server_was_reached(kit):
    async def story():
        scripts = [prefilled(kit, b'{"from":"1"}'), prefilled(kit, b'{"from":"2"}')]
        async with pair(kit, scripts, kit.reset, kit.reset, kit.serve, max_attempts=3) as (stage, servers):
            status = (await stage.ask(BODY)).status
            used = [body.get("kv_transfer_params") for body in bodies(stage.backends)]
            return status, used, [len(server.exchanges) for server in servers]

    status, used, asked = asyncio.run(story())

    assert status == 200
    assert asked == [1, 1]
    assert sorted(str(params) for params in used) == ["None", "{'from': '1'}", "{'from': '2'}"]


def test_parameters_are_used_again_when_the_decode_server_was_never_reached(kit):
    async def story():
        async with pair(kit, [prefilled(kit)], kit.serve, kit.serve) as (stage, servers):
            await stage.backends[0].stop()
            statuses = [(await stage.ask(BODY)).status for _ in range(2)]
            return statuses, len(servers[0].exchanges), [len(b) for b in bodies([stage.backends[1]])]

    assert asyncio.run(story()) == ([200, 200], 2, [4, 4])


def test_without_a_prefill_server_the_decode_server_does_it_all(kit):
    async def story():
        async with pair(kit, [prefilled(kit)], kit.serve) as (stage, servers):
            await servers[0].stop()
            return [(await stage.ask(BODY)).status for _ in range(5)], bodies(stage.backends)

    assert asyncio.run(story()) == ([200] * 5, [orjson.loads(BODY)] * 5)


def test_an_error_of_a_decode_server_that_had_to_fetch_is_not_held_against_it(kit):
    async def story():
        async with pair(kit, [prefilled(kit)], kit.say(kit.answer(500)), max_attempts=1) as (stage, _):
            reasons = [(await stage.ask(BODY)).reason for _ in range(4)]
            return reasons, stage.states(), [s.record.state.value for s in stage.router.prefill.shards]

    assert asyncio.run(story()) == (["upstream_error"] * 4, ["healthy"], ["healthy"])


@pytest.mark.parametrize("leg", ["prefill", "decode"])
def test_a_client_that_leaves_ends_the_leg_that_is_under_way(kit, leg):
    async def story():
        scripts = (kit.hang, kit.serve) if leg == "prefill" else (prefilled(kit), kit.hang)
        async with pair(kit, [scripts[0]], scripts[1]) as (stage, servers):
            server = servers[0] if leg == "prefill" else stage.backends[0]
            client = await stage.client()
            client.send(BODY)
            await stage.until(lambda: len(server.exchanges) == 1, f"the {leg} leg is under way")
            client.reset()
            await stage.until(lambda: server.abandoned == 1, f"the {leg} leg is dropped")
            return len(stage.backends[0].exchanges)

    assert asyncio.run(story()) == (0 if leg == "prefill" else 1)


@pytest.mark.parametrize("leg", ["prefill", "decode"])
def test_both_legs_share_one_deadline(kit, leg):
    async def story():
        scripts = (kit.hang, kit.serve) if leg == "prefill" else (prefilled(kit), kit.hang)
        async with pair(kit, [scripts[0]], scripts[1], backend_timeout_s=0.5) as (stage, _):
            reply = await stage.ask(BODY)
            return reply.status, reply.reason

    assert asyncio.run(story()) == (500, "deadline")


def test_a_decode_server_that_is_paused_meanwhile_is_sent_no_second_half(kit):
    async def story():
        async with pair(kit, [kit.serve], kit.serve) as (stage, servers):

            async def pause(exchange):
                stage.router.announce_pause()
                exchange.send(kit.answer(200, PREFILLED % PARAMS))

            servers[0].script = pause
            statuses = [(await stage.ask(BODY)).status for _ in range(2)]
            return statuses, len(servers[0].exchanges), bodies(stage.backends), stage.router.tally.pairings

    assert asyncio.run(story()) == ([200, 200], 1, [orjson.loads(BODY)] * 2, {"paused": 2})


def test_decode_servers_that_all_fail_do_not_make_a_request_poison_though_prefill_serves(kit):
    async def story():
        failing = [kit.say(kit.answer(500))] * 3
        async with pair(kit, [prefilled(kit, b"null")], *failing, max_attempts=1, poison_after=2) as (stage, _):
            return {(await stage.ask(BODY)).reason for _ in range(4)}

    assert asyncio.run(story()) == {"upstream_error"}


@settings(max_examples=25, deadline=None)
@given(
    prefill=st.lists(st.sampled_from(["params", "null", "error", "reset", "refuse"]), min_size=1, max_size=3),
    decode=st.lists(st.sampled_from(["serve", "error", "reset", "dead"]), min_size=1, max_size=3),
    attempts=st.integers(1, 3),
)
def test_whatever_fails_no_half_pair_is_sent_and_no_parameters_are_seen_twice(kit, prefill, decode, attempts):
    given_out, seen = [], []

    async def hand_out(exchange):
        given_out.append(len(given_out))
        exchange.send(kit.answer(200, PREFILLED % b'{"number":%d}' % given_out[-1]))

    def noting(script):
        async def note(exchange):
            params = orjson.loads(exchange.body).get("kv_transfer_params")
            if params is not None:
                seen.append(params["number"])
                assert params["number"] in given_out
            await script(exchange)

        return note

    scripts = {
        "params": hand_out,
        "null": prefilled(kit, b"null"),
        "error": kit.say(kit.answer(500)),
        "refuse": kit.say(kit.answer(400)),
        "reset": kit.reset,
        "serve": kit.serve,
        "dead": kit.serve,
    }

    async def story():
        first = [scripts[name] for name in prefill]
        second = [noting(scripts[name]) for name in decode]
        async with pair(kit, first, *second, max_attempts=attempts) as (stage, _):
            for server, name in zip(stage.backends, decode, strict=True):
                if name == "dead":
                    await server.stop()
            return [(await stage.ask(BODY)).status for _ in range(3)]

    statuses = asyncio.run(story())

    assert set(statuses) <= {200, 400, 409, 500}
    assert len(seen) == len(set(seen))
