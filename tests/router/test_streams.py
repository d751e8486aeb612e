"""Streamed answers: committed at the first event, and then only a proper end or an error event."""

import asyncio

import pytest

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
ENGINE_DEATH = b'data: {"error": {"message": "EngineCore encountered an issue."}}\n\n'


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"


def ask(kit, *scripts, met=None, **settings):
    """Ask for a stream; `met` is set when the first event has reached the client."""

    async def story():
        async with kit.Stage(*scripts, **settings) as stage:
            client = await stage.client()
            client.send(b'{"stream":true}')
            reply = await client.receive(met and met.set)
            await stage.until(lambda: stage.in_flight() == 0, "nothing is in flight")
            return reply, stage.states()

    return asyncio.run(story())


def test_a_stream_passes_event_by_event(kit):
    met = asyncio.Event()

    async def stepwise(exchange):
        exchange.send(SSE + chunk(EVENT))
        await met.wait()
        exchange.send(chunk(EVENT) + chunk(DONE) + LAST)

    reply, states = ask(kit, stepwise, met=met)

    assert (reply.status, reply.body) == (200, EVENT + EVENT + DONE)
    assert reply.headers["content-type"] == "text/event-stream"
    assert states == ["healthy"]


@pytest.mark.parametrize("piece", [b"", chunk(b"data: {"), LAST, chunk(ENGINE_DEATH) + chunk(DONE) + LAST])
def test_a_stream_that_fails_before_its_first_event_goes_to_another_shard(kit, piece):
    good = kit.say(SSE + chunk(EVENT) + chunk(DONE) + LAST)
    reply, states = ask(kit, good, kit.say(SSE + piece, then_close=True))

    assert (reply.status, reply.body) == (200, EVENT + DONE)
    assert states == ["healthy", "suspect"]


@pytest.mark.parametrize("ending", ["close", "reset", "garbage"])
def test_a_stream_cut_in_the_middle_ends_with_one_error_event(kit, ending):
    met = asyncio.Event()

    async def cut(exchange):
        exchange.send(SSE + chunk(EVENT))
        await met.wait()
        exchange.send(b"zz\r\n" if ending == "garbage" else b"")
        exchange.close() if ending == "close" else exchange.reset()

    reply, states = ask(kit, kit.serve, cut, met=met)

    assert reply.status == 200
    assert reply.raw.count(b"HTTP/1.1") == 1
    assert b"HTTP/1.1" not in reply.body
    assert reply.body.startswith(EVENT)
    assert reply.body.count(b'data: {"error"') == 1
    assert reply.body.endswith(b"\n\n")
    assert states == ["healthy", "suspect"]


def test_a_stream_that_stalls_ends_at_the_deadline_with_an_error_event(kit):
    async def stall(exchange):
        exchange.send(SSE + chunk(EVENT))
        await asyncio.sleep(3600)

    reply, states = ask(kit, stall, backend_timeout_s=0.3)

    assert reply.status == 200
    assert b"stream_cut" in reply.body
    assert states == ["suspect"]


def test_the_engines_own_error_event_passes_and_counts_against_it(kit):
    met = asyncio.Event()

    async def dies(exchange):
        exchange.send(SSE + chunk(EVENT))
        await met.wait()
        exchange.send(chunk(ENGINE_DEATH) + chunk(DONE) + LAST)

    reply, states = ask(kit, dies, met=met)

    assert reply.body == EVENT + ENGINE_DEATH + DONE
    assert states == ["suspect"]


@pytest.mark.parametrize(("tail", "whole"), [(DONE, True), (b"", False)])
def test_a_stream_delimited_by_closing_needs_its_end_mark(kit, tail, whole):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    reply, states = ask(kit, kit.say(head + EVENT + tail, then_close=True))

    assert (b"stream_cut" in reply.body) is not whole
    assert states == ["healthy" if whole else "suspect"]


def test_a_client_that_leaves_a_stream_frees_the_shard(kit):
    async def endless(exchange):
        exchange.send(SSE)
        while True:
            exchange.send(chunk(EVENT))
            await asyncio.sleep(0.01)

    async def story():
        async with kit.Stage(endless) as stage:
            client = await stage.client()
            client.send()
            await client.reader.readuntil(b"\n\n")
            client.reset()
            await stage.until(lambda: stage.in_flight() == 0, "nothing is in flight")
            await stage.until(lambda: stage.backends[0].abandoned == 1, "the backend has lost its connection")
            return stage.states()

    assert asyncio.run(story()) == ["healthy"]


def test_a_slow_reader_does_not_stop_the_next_request_on_the_upstream_connection(kit):
    """The stream has ended upstream while megabytes of it still wait for the client."""
    big = chunk(b"data: " + b"x" * 3_000_000 + b"\n\n")

    async def flood_then_serve(exchange):
        exchange.send(SSE + big + LAST if exchange.number == 1 else kit.answer())

    async def story():
        async with kit.Stage(flood_then_serve) as stage:
            slow = await stage.client()
            slow.writer.transport.pause_reading()
            slow.send()
            pool = stage.router.fleet.shards[0].pool
            await stage.until(lambda: len(pool._idle) == 1, "the stream has ended upstream")
            replies = [(await stage.ask()).status for _ in range(5)]
            slow.writer.transport.resume_reading()
            return replies, len((await slow.receive()).body), stage.backends[0].accepted

    replies, length, _ = asyncio.run(story())

    assert replies == [200] * 5
    assert length == 3_000_008


def test_a_client_that_does_not_read_its_stream_is_given_up(kit):
    async def flood(exchange):
        exchange.send(SSE)
        while True:
            exchange.send(chunk(b"data: " + b"x" * 100_000 + b"\n\n"))
            await exchange.writer.drain()

    async def story():
        async with kit.Stage(flood, client_idle_s=0.3) as stage:
            client = await stage.client()
            client.writer.transport.pause_reading()
            client.send()
            await stage.until(lambda: len(stage.backends[0].exchanges) == 1, "the stream has begun")
            await stage.until(lambda: stage.in_flight() == 0, "the stream is given up")
            return stage.states()

    assert asyncio.run(story()) == ["healthy"]


def test_an_http_1_0_client_gets_a_stream_that_closing_delimits(kit):
    async def story():
        async with kit.Stage(kit.say(SSE + chunk(EVENT) + chunk(DONE) + LAST)) as stage:
            client = await stage.client()
            client.writer.write(b"POST %b HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}" % kit.chat.encode())
            async with asyncio.timeout(10):
                return await client.reader.read()

    received = asyncio.run(story())

    assert b"Transfer-Encoding" not in received
    assert received.endswith(b"\r\n\r\n" + EVENT + DONE)
