"""Clients that dribble, idle, or do not read: nobody holds the router up."""

import asyncio
import time

import pytest


@pytest.mark.parametrize(
    "data", [b"POST /tokenize HTTP/1.1\r\nContent-Le", b"POST /tokenize HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"]
)
def test_a_request_that_stops_coming_gets_a_408(kit, data):
    async def story():
        async with kit.Stage(kit.serve, client_idle_s=0.2) as stage:
            client = await stage.client()
            client.writer.write(data)
            return await client.receive(), len(stage.backends[0].exchanges)

    reply, delivered = asyncio.run(story())

    assert (reply.status, reply.reason, delivered) == (408, "slow_client", 0)


def test_a_request_that_trickles_gets_a_408_at_the_deadline(kit):
    async def story():
        async with kit.Stage(kit.serve, client_idle_s=0.2, backend_timeout_s=0.3) as stage:
            client = await stage.client()
            client.writer.write(b"POST /tokenize HTTP/1.1\r\nContent-Length: 100\r\n\r\n")
            answer = asyncio.create_task(client.receive())
            while not answer.done():
                client.writer.write(b"x")
                await asyncio.sleep(0.02)
            return answer.result(), len(stage.backends[0].exchanges)

    reply, delivered = asyncio.run(story())

    assert (reply.status, reply.reason, delivered) == (408, "slow_client", 0)


def test_an_idle_connection_is_closed_after_a_while_and_not_before(kit):
    idle_s = 0.3

    async def slow(exchange):
        await asyncio.sleep(idle_s / 2)
        exchange.send(kit.answer())

    async def story():
        async with kit.Stage(slow, client_idle_s=idle_s) as stage:
            client = await stage.client()
            for _ in range(3):
                await client.ask()
            last = time.monotonic()
            end = await asyncio.wait_for(client.reader.read(), 10)
            return end, time.monotonic() - last

    end, waited_s = asyncio.run(story())

    assert end == b""
    assert waited_s > idle_s - 0.05  # the answer was sent before it was read


def test_a_client_that_waits_longer_than_the_idle_limit_for_its_answer_is_not_idle(kit):
    async def slow(exchange):
        await asyncio.sleep(0.5)
        exchange.send(kit.answer())

    async def story():
        async with kit.Stage(slow, client_idle_s=0.1) as stage:
            return (await stage.ask()).status

    assert asyncio.run(story()) == 200


def test_a_client_that_does_not_read_its_answer_is_given_up(kit):
    big = b'{"choices":[],"pad":"' + b"x" * (32 << 20) + b'"}'

    async def story():
        async with kit.Stage(kit.say(kit.answer(200, big)), client_idle_s=0.3) as stage:
            client = await stage.client()
            client.writer.transport.pause_reading()
            client.send()
            await stage.until(lambda: len(stage.backends[0].exchanges) == 1, "the request is delivered")
            await stage.until(lambda: not stage.router.listener._connections, "the client is given up")

    asyncio.run(story())
