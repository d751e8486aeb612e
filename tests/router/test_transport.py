"""The upstream side against scripted servers: how far did an attempt get, and what does that make it."""

import asyncio
import time

import pytest

from gymproof.router import transport, upstream_connection
from gymproof.router.failures import AttemptError, Outcome, Reached
from gymproof.router.headers import request_head
from gymproof.router.sockets import bind
from gymproof.router.transport import Pool
from gymproof.router.urls import parse_backend

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"


def head_for(endpoint, body=b""):
    return request_head(b"POST", b"/tokenize", endpoint.authority, b"", len(body))


async def attempt(pool, endpoint, body=b"", timeout_s=5.0, **options):
    return await pool.exchange(head_for(endpoint, body), body, time.monotonic() + timeout_s, **options)


def failure_of(kit, script, *, warm=0, timeout_s=5.0, max_body=1 << 20, body=b""):
    """The AttemptError of one attempt, after `warm` good ones on the same connection."""

    async def scripted(exchange):
        await (kit.serve if exchange.on_connection <= warm else script)(exchange)

    async def story():
        backend = kit.Backend(scripted)
        await backend.start()
        endpoint = parse_backend(backend.url)
        pool = Pool(endpoint, connect_timeout_s=1.0, max_body=max_body)
        try:
            for _ in range(warm):
                await attempt(pool, endpoint)
            with pytest.raises(AttemptError) as caught:
                await attempt(pool, endpoint, body, timeout_s)
        finally:
            pool.close()
            await kit.settle()
            await backend.stop()
        assert pool.connections == 0
        return caught.value

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("data", "outcome", "reached"),
    [
        (b"", Outcome.BROKE, Reached.WRITTEN),
        (b"HTTP/1.1 200", Outcome.BROKE, Reached.WRITTEN),
        (HEAD, Outcome.BROKE, Reached.HEAD),
        (HEAD + b"123", Outcome.BROKE, Reached.HEAD),
        (b"junk\r\n", Outcome.INVALID, Reached.WRITTEN),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Outcome.INVALID, Reached.HEAD),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", Outcome.INVALID, Reached.WRITTEN),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200_000, Outcome.INVALID, Reached.WRITTEN),
    ],
)
def test_an_attempt_knows_how_far_it_got(kit, data, outcome, reached):
    error = failure_of(kit, kit.say(data, then_close=True))

    assert (error.outcome, error.reached, error.reused) == (outcome, reached, False)


def test_a_reset_after_the_request_is_a_lost_connection(kit):
    error = failure_of(kit, kit.reset)

    assert (error.outcome, error.reached) == (Outcome.BROKE, Reached.WRITTEN)


def test_silence_until_the_deadline_is_a_hang(kit):
    error = failure_of(kit, kit.hang, timeout_s=0.1)

    assert (error.outcome, error.reached) == (Outcome.HUNG, Reached.WRITTEN)


def test_a_server_that_does_not_read_a_large_body_was_not_written_to(kit):
    async def story():
        with bind("127.0.0.1", 0) as deaf:  # the kernel accepts, as it does for a stopped process
            endpoint = parse_backend(f"http://127.0.0.1:{deaf.getsockname()[1]}")
            pool = Pool(endpoint, connect_timeout_s=1.0, max_body=1 << 20)
            with pytest.raises(AttemptError) as caught:
                await attempt(pool, endpoint, b"x" * (64 << 20), timeout_s=0.3)
            pool.close()
            await kit.settle()
        return caught.value

    error = asyncio.run(story())

    assert (error.outcome, error.reached) == (Outcome.HUNG, Reached.CONNECTED)


def test_a_closed_pooled_connection_is_stale_and_nobodys_fault(kit):
    error = failure_of(kit, kit.close, warm=2)

    assert (error.outcome, error.reused) == (Outcome.STALE_CONNECTION, True)


def test_a_pooled_connection_lost_after_the_first_byte_is_a_failure(kit):
    error = failure_of(kit, kit.say(b"HTTP/1.1 2", then_close=True), warm=1)

    assert (error.outcome, error.reused) == (Outcome.BROKE, True)


def test_a_pooled_connection_lost_late_is_a_failure(kit, monkeypatch):
    monkeypatch.setattr(upstream_connection, "STALE_WINDOW_S", 0.05)

    async def late(exchange):
        await asyncio.sleep(0.15)
        exchange.close()

    assert failure_of(kit, late, warm=1).outcome is Outcome.BROKE


def test_an_answer_over_the_limit_is_given_up(kit):
    error = failure_of(kit, kit.say(kit.answer(200, b"x" * 5000)), max_body=1000)

    assert error.outcome is Outcome.OVERSIZED


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://nowhere.invalid:80"])
def test_what_cannot_be_reached_was_not_delivered(url):
    async def story():
        endpoint = parse_backend(url)
        pool = Pool(endpoint, connect_timeout_s=5.0, max_body=1)
        with pytest.raises(AttemptError) as caught:
            await attempt(pool, endpoint)
        return caught.value

    error = asyncio.run(story())

    assert (error.outcome, error.reached) == (Outcome.UNREACHABLE, Reached.NONE)


def test_a_connect_has_its_own_timeout():
    async def story():
        async def never(*_args, **_kwargs):
            await asyncio.sleep(3600)

        asyncio.get_running_loop().create_connection = never
        endpoint = parse_backend("http://127.0.0.1:9")
        pool = Pool(endpoint, connect_timeout_s=0.05, max_body=1)
        with pytest.raises(AttemptError) as caught:
            await attempt(pool, endpoint)
        return caught.value

    assert asyncio.run(story()).outcome is Outcome.UNREACHABLE


def test_a_loop_that_was_too_busy_to_connect_in_time_still_connects(kit):
    async def story():
        backend = kit.Backend(kit.serve)
        await backend.start()
        endpoint = parse_backend(backend.url)
        pool = Pool(endpoint, connect_timeout_s=0.2, max_body=1 << 20)
        connecting = asyncio.create_task(attempt(pool, endpoint))
        await asyncio.sleep(0)  # it has begun
        busy_until = time.monotonic() + 0.4
        while time.monotonic() < busy_until:
            pass
        try:
            return await connecting
        finally:
            pool.close()
            await backend.stop()

    assert asyncio.run(story()).status == 200


def test_out_of_files_is_the_routers_own_trouble():
    async def story():
        async def none_left(*_args, **_kwargs):
            raise OSError(24, "Too many open files")

        asyncio.get_running_loop().create_connection = none_left
        endpoint = parse_backend("http://127.0.0.1:9")
        with pytest.raises(AttemptError) as caught:
            await attempt(Pool(endpoint, connect_timeout_s=1.0, max_body=1), endpoint)
        return caught.value

    assert asyncio.run(story()).outcome is Outcome.EXHAUSTED


def test_connections_are_reused_until_they_are_too_old(kit, monkeypatch):
    async def story():
        backend = kit.Backend(kit.serve)
        await backend.start()
        endpoint = parse_backend(backend.url)
        pool = Pool(endpoint, connect_timeout_s=1.0, max_body=1 << 20)
        reused = [(await attempt(pool, endpoint)).reused for _ in range(3)]
        fresh = (await attempt(pool, endpoint, fresh=True)).reused
        monkeypatch.setattr(transport, "IDLE_S", -1.0)
        old = (await attempt(pool, endpoint)).reused
        pool.close()
        await kit.settle()
        await backend.stop()
        return reused, fresh, old

    assert asyncio.run(story()) == ([False, True, True], False, False)


def test_bytes_after_a_whole_answer_cost_the_connection_and_not_the_answer(kit):
    async def story():
        backend = kit.Backend(kit.say(kit.answer() + b"surplus"))
        await backend.start()
        endpoint = parse_backend(backend.url)
        pool = Pool(endpoint, connect_timeout_s=1.0, max_body=1 << 20)
        responses = [await attempt(pool, endpoint) for _ in range(2)]
        pool.close()
        await kit.settle()
        await backend.stop()
        return [(response.body, response.reused) for response in responses]

    assert asyncio.run(story()) == [(kit.completion, False)] * 2


def test_who_waits_on_a_connection_that_the_router_drops_is_told(kit):
    async def story():
        backend = kit.Backend(kit.hang)
        await backend.start()
        endpoint = parse_backend(backend.url)
        pool = Pool(endpoint, connect_timeout_s=1.0, max_body=1)
        task = asyncio.create_task(attempt(pool, endpoint))
        async with asyncio.timeout(5):
            while not backend.exchanges:  # noqa: ASYNC110  bounded
                await asyncio.sleep(0.005)
            pool.close()
            with pytest.raises(AttemptError) as caught:
                await task
        await backend.stop()
        return caught.value.outcome

    assert asyncio.run(story()) is Outcome.BROKE


def test_a_cancelled_attempt_closes_its_connection(kit):
    async def story():
        backend = kit.Backend(kit.hang)
        await backend.start()
        endpoint = parse_backend(backend.url)
        pool = Pool(endpoint, connect_timeout_s=1.0, max_body=1)
        task = asyncio.create_task(attempt(pool, endpoint))
        async with asyncio.timeout(5):
            while not backend.exchanges:  # noqa: ASYNC110  bounded
                await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            while not backend.abandoned:  # noqa: ASYNC110  bounded
                await asyncio.sleep(0.005)
        assert pool.connections == 0
        await backend.stop()

    asyncio.run(story())
