"""The scripted server against a plain socket."""

import asyncio
import socket
import time
from urllib.parse import urlsplit

import pytest

from gymproof.validators.cases import FAULT_CASES
from gymproof.validators.script import Address, End, Reads, Redirect, always, in_turn, nobody
from gymproof.validators.scripted_server import UNKNOWN_HOST, play
from gymproof.validators.wire import OK, plain

REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


async def exchange(base_url: str, *requests: bytes) -> bytes:
    """Send requests on one connection, then read until the server or the deadline ends it."""
    address = urlsplit(base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        for request in requests:
            writer.write(request)
        received = b""
        while chunk := await asyncio.wait_for(reader.read(1 << 16), 5):
            received += chunk
            if received.count(b"HTTP/1.1 ") >= len(requests) and received.endswith(b"}"):
                break
        return received
    finally:
        writer.close()
        await writer.wait_closed()


def test_each_request_gets_its_round_and_is_counted():
    async def scenario():
        async with play(in_turn([plain(503)], [OK])) as stage:
            return await exchange(stage.base_url, REQUEST, REQUEST), stage.requests

    received, requests = asyncio.run(scenario())

    assert received.index(b" 503 ") < received.index(b" 200 ")
    assert requests == 2


def test_fin_closes_after_what_was_sent():
    async def scenario():
        async with play(always(b"half", End.FIN)) as stage:
            return await exchange(stage.base_url, REQUEST)

    assert asyncio.run(scenario()) == b"half"


def test_rst_resets():
    async def scenario():
        async with play(always(End.RST)) as stage:
            await exchange(stage.base_url, REQUEST)

    with pytest.raises(ConnectionResetError):
        asyncio.run(scenario())


def test_stall_sends_nothing_until_the_client_leaves():
    async def scenario():
        async with play(always(End.STALL)) as stage:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(exchange(stage.base_url, REQUEST), 0.2)
            return stage.requests

    assert asyncio.run(scenario()) == 1


def test_a_case_may_act_before_it_has_read_anything():
    async def scenario():
        async with play(always(b"early", End.FIN, reads=Reads.NOTHING)) as stage:
            return await exchange(stage.base_url)

    assert asyncio.run(scenario()) == b"early"


def test_a_redirect_names_a_port_that_refuses():
    async def scenario():
        async with play(always(Redirect(307, "http://127.0.0.1:{dead}/x"), End.FIN)) as stage:
            received = await exchange(stage.base_url, REQUEST)
            port = int(received.partition(b"127.0.0.1:")[2].partition(b"/")[0])
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(scenario())


def test_a_refused_address_refuses_until_it_heals():
    async def scenario():
        async with play(nobody(Address.REFUSED), heal_after_s=0.3) as stage:
            with pytest.raises(ConnectionRefusedError):
                await exchange(stage.base_url, REQUEST)
            deadline = time.monotonic() + 10
            while not stage.healed:
                assert time.monotonic() < deadline, "the address did not heal within 10 s"
                await asyncio.sleep(0.02)
            return await exchange(stage.base_url, REQUEST)

    assert b" 200 " in asyncio.run(scenario())


def test_a_name_that_does_not_exist_is_counted_and_the_resolver_is_given_back():
    async def scenario():
        loop = asyncio.get_running_loop()
        async with play(nobody(Address.UNRESOLVABLE)) as stage:
            with pytest.raises(socket.gaierror):
                await loop.getaddrinfo(UNKNOWN_HOST, 80)
            assert await loop.getaddrinfo("127.0.0.1", 80)
            assert stage.requests == 1
        assert "getaddrinfo" not in vars(loop)

    asyncio.run(scenario())


@pytest.mark.parametrize("name", FAULT_CASES)
def test_every_case_opens_and_closes_without_a_client(name):
    async def scenario():
        async with play(FAULT_CASES[name]) as stage:
            assert stage.base_url
        assert stage.requests == 0

    asyncio.run(asyncio.wait_for(scenario(), 5))


def test_a_healed_server_answers_every_request():
    async def scenario():
        async with play(always(End.RST)) as stage:
            stage.healed = True
            return await exchange(stage.base_url, REQUEST)

    assert b" 200 " in asyncio.run(scenario())


def test_closing_ends_connections_that_are_still_open():
    async def scenario():
        async with play(always(End.STALL)) as stage:
            address = urlsplit(stage.base_url)
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(REQUEST)
            await asyncio.wait_for(stage.progress(), 5)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 5)
        writer.close()

    asyncio.run(scenario())
