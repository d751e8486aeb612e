"""Several requests, several shards: races, accounting, poison, and clients that leave."""

import asyncio
import gc
import random

import pytest

from gymproof.router.calls import Call


def test_a_server_that_closes_idle_connections_never_costs_a_request(kit):
    """The keep-alive race: half of the requests meet a connection that the server has just given up."""

    async def every_second_closes(exchange):
        exchange.send(kit.answer())
        await exchange.writer.drain()
        exchange.close()

    async def story():
        async with kit.Stage(every_second_closes) as stage:
            client = await stage.client()
            statuses = [(await client.ask()).status for _ in range(200)]
            return statuses, len(stage.router.fleet.shards[0].record.strikes)

    statuses, strikes = asyncio.run(story())

    assert statuses == [200] * 200
    assert strikes == 0


def test_a_reused_connection_that_dies_unanswered_is_tried_once_more_on_a_fresh_one(kit):
    async def dies_when_reused(exchange):
        if exchange.on_connection > 1:
            exchange.close()
        else:
            exchange.send(kit.answer())

    async def story():
        async with kit.Stage(dies_when_reused) as stage:
            statuses = [(await stage.ask()).status for _ in range(6)]
            shard = stage.router.fleet.shards[0]
            return statuses, len(shard.record.strikes), stage.backends[0].accepted

    statuses, strikes, accepted = asyncio.run(story())

    assert statuses == [200] * 6
    assert strikes == 0
    assert accepted > 3


def test_a_server_that_dies_under_a_reused_connection_has_lost_the_work(kit):
    """Reset on the pooled connection, then refused on the fresh one: a delivery that counts, and a strike."""

    async def story():
        async with kit.Stage(kit.serve, kit.serve, max_attempts=1, policy="least_outstanding") as stage:
            doomed = stage.backends[0]
            await stage.ask()
            await stage.ask()

            async def die(exchange):
                doomed._server.close()
                exchange.reset()

            doomed.script = die
            return [(await stage.ask()).reason for _ in range(2)], stage.states()

    reasons, states = asyncio.run(story())

    assert sorted(reasons) == ["", "connection_lost"]
    assert states[0] == "suspect"


def test_64_requests_cut_by_one_crash_are_one_strike_and_all_are_saved(kit):
    async def story():
        async with kit.Stage(kit.hang, kit.serve, policy="least_outstanding") as stage:
            doomed = stage.backends[0]
            clients = [await stage.client() for _ in range(64)]
            asking = [asyncio.create_task(client.ask()) for client in clients]
            await stage.until(lambda: len(doomed.exchanges) >= 16, "the doomed backend has work")
            for exchange in doomed.exchanges:
                exchange.reset()
            replies = await asyncio.gather(*asking)
            shard = stage.router.fleet.shards[0]
            return [reply.status for reply in replies], shard.drain(), stage.states()

    statuses, (_, failures), states = asyncio.run(story())

    assert statuses == [200] * 64
    assert failures == 1
    assert states == ["suspect", "healthy"]


def test_a_shard_that_got_the_rest_of_a_budget_is_not_blamed_for_the_deadline(kit):
    async def late_and_bad(exchange):
        await asyncio.sleep(1.2)  # more than half of the budget, and far from all of it
        exchange.reset()

    async def story():
        async with kit.Stage(kit.hang, late_and_bad, backend_timeout_s=2.0) as stage:
            reply = await stage.ask()
            return reply.reason, stage.states()

    assert asyncio.run(story()) == ("out_of_time", ["healthy", "suspect"])


def test_a_busy_shard_serves_again_the_moment_it_can(kit):
    async def busy_twenty_times(exchange):
        exchange.send(kit.answer(503, b"") if exchange.number <= 20 else kit.answer())

    async def story():
        async with kit.Stage(busy_twenty_times) as stage:
            return [(await stage.ask()).status for _ in range(21)], stage.states()

    assert asyncio.run(story()) == ([500] * 20 + [200], ["healthy"])


@pytest.mark.parametrize(
    "refusal", [(503, b""), (200, b'{"choices":[{"finish_reason":"abort"}]}')], ids=["busy", "abort"]
)
def test_who_turns_a_request_down_is_not_asked_at_once_again_for_looking_idle(kit, refusal):
    async def story():
        over = asyncio.Event()

        async def holds_the_first(exchange):
            if exchange.number == 1:
                await over.wait()
            exchange.send(kit.answer())

        down = kit.say(kit.answer(*refusal))
        async with kit.Stage(down, down, holds_the_first, policy="least_outstanding") as stage:
            first = await stage.ask()  # two shards are tried
            held = asyncio.create_task(stage.ask())
            await stage.until(lambda: stage.router.fleet.shards[2].in_flight == 1, "a request on the third shard")
            others = [(await stage.ask()).status for _ in range(5)]
            over.set()
            return first.status, others, (await held).status

    assert asyncio.run(story()) == (500, [200] * 5, 200)


def test_bad_requests_eject_nobody(kit):
    async def story():
        async with kit.Stage(kit.say(kit.answer(400, b'{"error":{}}'))) as stage:
            statuses = {(await stage.ask()).status for _ in range(50)}
            return statuses, stage.states(), stage.router.fleet.shards[0].drain()

    assert asyncio.run(story()) == ({400}, ["healthy"], (0, 0))


@pytest.mark.parametrize("after", [0.0, 0.05])
def test_a_client_that_leaves_is_neutral_and_its_upstream_is_dropped(kit, after):
    async def story():
        async with kit.Stage(kit.hang) as stage:
            backend = stage.backends[0]
            clients = [await stage.client() for _ in range(30)]
            for client in clients:
                client.send()
            if after:
                await stage.until(lambda: len(backend.exchanges) == 30, "every request has been delivered")
            for client in clients:
                client.reset()
            await stage.until(lambda: stage.in_flight() == 0, "nothing is in flight")
            await stage.until(lambda: backend.abandoned == len(backend.exchanges), "the backend was let go everywhere")
            return stage.states(), stage.router.fleet.shards[0].drain()

    assert asyncio.run(story()) == (["healthy"], (0, 0))


def test_a_client_that_leaves_while_it_waits_for_a_shard_is_let_go(kit):
    async def story():
        async with kit.Stage(kit.serve, health="pushed", no_shard_hold_s=8.0) as stage:
            client = await stage.client()
            client.send()
            await stage.until(lambda: stage.router.tally.in_flight == 1, "the request waits")
            client.reset()
            await stage.until(lambda: stage.in_flight() == 0, "it is let go")
            return len(stage.router.fleet._waiters)

    assert asyncio.run(story()) == 0


def test_counts_return_to_zero_after_any_mixture_of_endings(kit):
    endings = [
        kit.serve,
        kit.close,
        kit.reset,
        kit.say(kit.answer(404, b"{}")),
        kit.say(kit.answer(503, b"")),
        kit.hang,
    ]
    dice = random.Random(7)

    async def anything(exchange):
        await dice.choice(endings)(exchange)

    async def one(stage):
        client = await stage.client()
        client.send(b"x" * dice.randrange(100_000))
        if dice.random() < 0.3:
            await asyncio.sleep(dice.random() / 50)
            client.reset()
            return
        await client.receive()

    async def story():
        async with kit.Stage(anything, anything, anything, backend_timeout_s=0.5, eject_after=1000) as stage:
            await asyncio.gather(*(one(stage) for _ in range(150)))
            await stage.until(lambda: stage.in_flight() == 0, "every count is back at zero")

    asyncio.run(story())


@pytest.mark.parametrize("ending", ["serve", "reset", "close", "hang", "client leaves"])
def test_a_request_leaves_nothing_behind_for_the_garbage_collector(kit, ending):
    """Its body may be megabytes, and a storm of failures is many of them."""

    async def story():
        async with kit.Stage(
            getattr(kit, ending, kit.hang), backend_timeout_s=0.1 if ending == "hang" else 10.0
        ) as stage:
            client = await stage.client()
            client.send(b"x" * 1000)
            if ending == "client leaves":
                await stage.until(lambda: stage.in_flight() > 0, "the request is under way")
                client.reset()
            else:
                await client.receive()
            await stage.until(lambda: not any(isinstance(thing, Call) for thing in gc.get_objects()), "nothing is left")

    gc.collect()
    gc.disable()
    try:
        asyncio.run(story())
    finally:
        gc.enable()


def poisoned(kit):
    async def script(exchange):
        if b"poison" in exchange.body:
            exchange.reset()
        else:
            exchange.send(kit.answer())

    return script


def test_a_poison_request_is_told_off_before_it_takes_the_whole_fleet(kit):
    async def story():
        async with kit.Stage(*[poisoned(kit)] * 5, eject_after=100) as stage:
            replies = []
            for _ in range(4):
                replies.append(await stage.ask(b"poison"))
                await stage.ask(b"fine")
            reached = sum(e.body == b"poison" for backend in stage.backends for e in backend.exchanges)
            return replies, reached

    replies, reached = asyncio.run(story())

    assert [reply.status for reply in replies] == [500, 422, 422, 422]
    assert replies[-1].reason == "poison"
    assert replies[-1].json["error"]["message"].count("http://") == 3
    assert reached == 3


def test_a_fault_of_every_shard_is_not_blamed_on_the_request(kit):
    async def story():
        async with kit.Stage(*[kit.reset] * 4, eject_after=100) as stage:
            return [(await stage.ask(b"same")).status for _ in range(6)]

    assert asyncio.run(story()) == [500] * 6


def test_hundreds_of_requests_at_once_are_all_served(kit):
    async def slow(exchange):
        await asyncio.sleep(0.3)
        exchange.send(kit.answer())

    async def story():
        async with kit.Stage(slow, slow, backend_timeout_s=60.0) as stage:
            gate = asyncio.Semaphore(200)  # connecting, not asking

            async def one():
                async with gate:
                    client = await stage.client()
                return (await client.ask()).status

            return await asyncio.gather(*(one() for _ in range(300)))

    assert asyncio.run(story()) == [200] * 300
