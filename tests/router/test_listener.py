"""The client-facing side: limits, malformed requests, pipelining, the end of a connection."""

import asyncio

import pytest

MIB = 1 << 20


def talk(kit, data, *, pieces=(), **settings):
    """What the router answers to raw bytes, until it closes or the answers are complete."""

    async def story():
        async with kit.Stage(kit.serve, **settings) as stage:
            client = await stage.client()
            client.writer.write(data)
            for piece in pieces:
                await asyncio.sleep(0)
                client.writer.write(piece)
            reply = await client.receive()
            return reply, [e.body for e in stage.backends[0].exchanges]

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [
        (b"nonsense\r\n\r\n", 422, "malformed_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00", 422, "malformed_request"),
        (b"POST /tokenize HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 422, "malformed_request"),
        (b"POST /tokenize HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 422, "malformed_request"),
        (b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 422, "malformed_request"),
        (b"BREW /tokenize HTTP/1.1\r\n\r\n", 405, "method_not_allowed"),
        (b"BREW http://router/tokenize HTTP/1.1\r\n\r\n", 405, "method_not_allowed"),
        (b"post /tokenize HTTP/1.1\r\n\r\n", 405, "method_not_allowed"),
        (b"BREW /coffee HTTP/1.1\r\n\r\n", 404, "not_found"),
        (b"BREW /tokenize\r\n\r\n", 422, "malformed_request"),
        (b"GET http://router/tokenize HTTP/1.1\r\n\r\n", 405, "method_not_allowed"),
        (b"GET http://router HTTP/1.1\r\n\r\n", 404, "not_found"),
        (b"POST /tokenize HTTP/1.1\r\nExpect: the-unexpected\r\n\r\n", 417, "expectation_failed"),
        (b"POST /tokenize HTTP/1.1\r\nA: " + b"a" * 70_000 + b"\r\n\r\n", 431, "header_too_large"),
        (b"POST /tokenize HTTP/1.1\r\nA: " + b"a" * 70_000, 431, "header_too_large"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 404, "not_found"),
        (b"GET /tokenize HTTP/1.1\r\n\r\n", 405, "method_not_allowed"),
        (b"DELETE /v1/models HTTP/1.1\r\n\r\n", 405, "method_not_allowed"),
        (b"POST /pause HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 404, "not_found"),
        (b"POST /tokenize HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413, "body_too_large"),
    ],
    ids=lambda value: f"{value[:24]!r} {len(value)}" if isinstance(value, bytes) else None,
)
def test_what_the_router_turns_down_gets_json_that_says_why(kit, data, status, reason):
    reply, delivered = talk(kit, data, max_body_mib=1)

    assert (reply.status, reply.reason) == (status, reason)
    assert reply.headers["content-type"] == "application/json"
    assert reply.json["error"]["code"] == reason
    assert delivered == []


@pytest.mark.parametrize("target", [b"http://router/tokenize?a=b", b"HTTPS://user@r:1/tokenize?a=b", b"/tokenize?a=b"])
def test_a_target_may_have_scheme_and_authority(kit, target):
    async def story():
        async with kit.Stage(kit.serve) as stage:
            client = await stage.client()
            client.writer.write(b"POST %b HTTP/1.1\r\nHost: r\r\nContent-Length: 2\r\n\r\n{}" % target)
            return (await client.receive()).status, stage.backends[0].exchanges[0].head

    status, head = asyncio.run(story())

    assert status == 200
    assert head.startswith(b"POST /tokenize?a=b HTTP/1.1\r\n")


@pytest.mark.parametrize("path", [b"/v1/models", b"/tokenize", b"/nowhere"])
def test_head_is_answered_without_a_body_and_the_connection_goes_on(kit, path):
    async def story():
        async with kit.Stage(kit.serve) as stage:
            client = await stage.client()
            client.writer.write(b"HEAD %b HTTP/1.1\r\nHost: r\r\n\r\n" % path)
            head = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 10)
            client.writer.write(b"DELETE %b HTTP/1.1\r\nHost: r\r\n\r\n" % path)
            return head, await client.receive()

    head, other = asyncio.run(story())

    assert head == other.raw
    assert len(other.body) == int(other.headers["content-length"]) > 0
    assert "connection" not in other.headers


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /v1/models HTTP/1.1\r\nA: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /v1/models HTTP/1.1\r\nA: " + b"a" * 70_000, 431),
        (b"nonsense\r\n\r\n", 422),
        (b"BREW /tokenize HTTP/1.1\r\n\r\n", 405),
        (b"POST /tokenize HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}", 422),
        (b"POST /tokenize HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"POST /tokenize HTTP/1.1\r\nContent-Length: 9\r\n\r\n{", 408),
        (b"POST /tokenize HTTP/1.1\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n", 408),
        (b"POST /nowhere HTTP/1.1\r\nContent-Length: 9\r\n\r\n{", 404),
    ],
    ids=lambda value: f"{value[:24]!r} {len(value)}" if isinstance(value, bytes) else None,
)
def test_an_answer_after_which_the_router_closes_says_so_and_it_closes_soon(kit, data, status):
    async def story():
        async with kit.Stage(kit.serve, max_body_mib=1, client_idle_s=0.3) as stage:
            client = await stage.client()
            client.writer.write(data)
            if b"Expect" in data:
                await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 10)
            reply = await client.receive()
            asked = asyncio.get_running_loop().time()
            end = await asyncio.wait_for(client.reader.read(), 10)
            return reply, end, asyncio.get_running_loop().time() - asked

    reply, end, waited_s = asyncio.run(story())

    assert (reply.status, reply.headers.get("connection"), end) == (status, "close", b"")
    assert waited_s < 3


@pytest.mark.parametrize(("size", "status"), [(MIB - 1, 200), (MIB, 200), (MIB + 1, 413)])
@pytest.mark.parametrize("chunked", [False, True])
def test_the_body_limit_is_exact_for_both_framings(kit, size, status, chunked):
    body = b"x" * size
    if chunked:
        data = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (size, body)
    else:
        data = b"Content-Length: %d\r\n\r\n%b" % (size, body)
    reply, delivered = talk(kit, b"POST /tokenize HTTP/1.1\r\n" + data, max_body_mib=1)

    assert reply.status == status
    assert delivered == ([body] if status == 200 else [])


def test_a_request_may_come_in_many_pieces(kit):
    data = b"POST /tokenize HTTP/1.1\r\nContent-Length: 4\r\nX-A: b\r\n\r\nabcd"
    reply, delivered = talk(kit, b"", pieces=[data[i : i + 1] for i in range(len(data))])

    assert (reply.status, delivered) == (200, [b"abcd"])


def test_a_client_may_wait_for_100_continue(kit):
    async def story():
        async with kit.Stage(kit.serve) as stage:
            client = await stage.client()
            client.writer.write(b"POST /tokenize HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            herald = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 10)
            client.writer.write(b"{}")
            return herald, await client.receive(), stage.backends[0].exchanges[0].head

    herald, reply, head = asyncio.run(story())

    assert herald == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert reply.status == 200
    assert b"Expect" not in head


def test_requests_on_one_connection_are_answered_in_their_order(kit):
    async def echo(exchange):
        await asyncio.sleep(0.05 if exchange.body == b"0" else 0)
        exchange.send(kit.answer(200, b'{"n":%b}' % exchange.body))

    async def story():
        async with kit.Stage(echo) as stage:
            client = await stage.client()
            for n in range(40):
                if n % 7 == 3:
                    client.send(b"", "/nowhere")
                else:
                    client.send(b"%d" % n)
            return [await client.receive() for _ in range(40)]

    replies = asyncio.run(story())

    assert [r.json["n"] if r.status == 200 else None for r in replies] == [n if n % 7 != 3 else None for n in range(40)]


def test_thousands_of_pipelined_refusals_are_answered(kit):
    async def story():
        async with kit.Stage(kit.serve) as stage:
            client = await stage.client()
            client.writer.write(b"GET /nowhere HTTP/1.1\r\n\r\n" * 3000)
            return {(await client.receive()).status for _ in range(3000)}

    assert asyncio.run(story()) == {404}


def test_a_connection_is_kept_unless_the_client_wants_it_closed(kit):
    async def story():
        async with kit.Stage(kit.serve) as stage:
            client = await stage.client()
            first = await client.ask()
            last = await client.ask(b"{}", kit.chat, "POST", "Connection: close")
            end = await asyncio.wait_for(client.reader.read(), 10)
            return first, last, end

    first, last, end = asyncio.run(story())

    assert "connection" not in first.headers
    assert last.headers["connection"] == "close"
    assert end == b""


def test_another_protocol_is_not_spoken(kit):
    data = b"POST /tokenize HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}"
    reply, delivered = talk(kit, data)

    assert (reply.status, reply.reason) == (422, "upgrade_refused")
    assert delivered == []


def test_above_the_limit_of_requests_in_flight_the_answer_is_a_500(kit):
    async def story():
        async with kit.Stage(kit.hang, backend_timeout_s=0.5) as stage:
            object.__setattr__(stage.router.listener.limits, "max_in_flight", 2)
            clients = [await stage.client() for _ in range(3)]
            for client in clients[:2]:
                client.send()
            await stage.until(lambda: stage.router.tally.in_flight == 2, "two requests are under way")
            return await clients[2].ask()

    reply = asyncio.run(story())

    assert (reply.status, reply.reason) == (500, "router_exhausted")


def test_twenty_answers_of_8_mib_at_once_arrive_whole(kit):
    big = b'{"choices":[],"pad":"' + b"x" * (8 << 20) + b'"}'

    async def story():
        async with kit.Stage(kit.say(kit.answer(200, big)), backend_timeout_s=60.0) as stage:
            replies = await asyncio.gather(*(stage.ask() for _ in range(20)))
            return [reply.body == big for reply in replies]

    assert asyncio.run(story()) == [True] * 20


def test_a_request_that_arrives_with_the_stop_is_answered_and_its_connection_closed(kit):
    async def story():
        async with kit.Stage(kit.serve) as stage:
            clients = [await stage.client() for _ in range(20)]
            for client in clients:
                await client.ask()
            for client in clients:
                client.send()
            clean = await stage.router.stop()
            return clean, [await client.receive() for client in clients]

    clean, replies = asyncio.run(story())

    assert clean
    assert {(reply.status, reply.headers["connection"]) for reply in replies} == {(200, "close")}


def test_the_backend_sees_its_own_host_and_the_clients_headers(kit):
    async def story():
        async with kit.Stage(kit.serve) as stage:
            await stage.ask(b"{}", "/tokenize?a=%27b", "POST", "Authorization: Bearer k", "X-Session-ID: s", "TE: x")
            return stage.backends[0].exchanges[0].head.decode(), stage.backends[0].port

    head, port = asyncio.run(story())

    assert head.startswith("POST /tokenize?a=%27b HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{port}\r\n" in head
    assert "Authorization: Bearer k\r\n" in head
    assert "X-Session-ID: s\r\n" in head
    assert "TE:" not in head
    assert head.count("Content-Length: 2\r\n") == 1


def test_models_are_asked_with_a_bare_get(kit):
    async def story():
        async with kit.Stage(kit.serve) as stage:
            client = await stage.client()
            client.writer.write(b"GET /v1/models HTTP/1.1\r\nHost: r\r\n\r\n")
            return await client.receive()

    reply = asyncio.run(story())

    assert (reply.status, reply.json) == (200, {"data": [{"id": "tiny"}]})
