"""What a witness calls what it sees."""

import asyncio

import pytest

from gymproof.chaos.asking import dial
from gymproof.chaos.faults import FAULTS
from gymproof.chaos.faults.base import Symptom
from gymproof.chaos.http1 import ResponseReader
from gymproof.chaos.tags import call_of
from gymproof.chaos.witness import Witness, WitnessError, classify, matches, observe

CHAT = b'{"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "length"}]}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(CHAT), CHAT)


def whole(body, status=200):
    return b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.parametrize(
    ("data", "how", "symptom"),
    [
        (ANSWER, "", Symptom.OK),
        (whole(CHAT, 201), "", Symptom.STATUS),
        (whole(b"{}", 503), "", Symptom.STATUS),
        (whole(CHAT.replace(b"length", b"abort")), "", Symptom.WRONG),
        (whole(b'{"choices": []}'), "", Symptom.WRONG),
        (whole(b"[1]"), "", Symptom.WRONG),
        (whole(b"null"), "", Symptom.WRONG),
        (whole(b'{"choices": [{"finish_reason": []}]}'), "", Symptom.WRONG),
        (whole(b""), "", Symptom.WRONG),
        (b"", "fin", Symptom.CLOSED),
        (b"", "rst", Symptom.RESET),
        (b"", "silence", Symptom.SILENT),
        (ANSWER[:20], "fin", Symptom.CLOSED),
        (ANSWER[:-1], "fin", Symptom.TRUNCATED),
        (ANSWER[:-1], "rst", Symptom.TRUNCATED),
        (ANSWER[:-1], "silence", Symptom.SILENT),
        (b"BLARGH\r\n", "fin", Symptom.BAD_HTTP),
        (ANSWER + ANSWER, "", Symptom.BAD_HTTP),
    ],
)
def test_each_thing_that_can_come_back_has_a_name(data, how, symptom):
    answer = ResponseReader()
    answer.feed(data)

    assert classify(answer, how) is symptom


def test_a_port_that_nobody_listens_on_is_refused():
    async def main():
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        return await observe(f"http://127.0.0.1:{port}", patience_s=5.0)

    assert asyncio.run(main()).symptom is Symptom.REFUSED


def test_the_witness_asks_for_one_token_under_its_own_name_on_a_connection_it_keeps(raw_server):
    async def main():
        bodies, connections = [], []

        async def shard(reader, writer):
            connections.append(writer)
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                bodies.append(await reader.readexactly(int(head.rpartition(b": ")[2])))
                writer.write(ANSWER)

        async with raw_server(shard) as port:
            url = f"http://127.0.0.1:{port}"
            async with Witness([url]) as witness:
                seen = await witness.look(url)
        return bodies, len(connections), seen

    bodies, connections, seen = asyncio.run(main())

    assert {call_of(body) for body in bodies} == {"witness"}
    assert all(b'"max_tokens":1' in body for body in bodies)
    assert (len(bodies), connections, seen) == (5, 2, (Symptom.OK, Symptom.OK))


def slow_after(quick, *, wait_s):
    """A shard that answers `quick` requests at once and the others after `wait_s` seconds."""
    asked = 0

    async def shard(reader, writer):
        nonlocal asked
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.rpartition(b": ")[2]))
            asked += 1
            if asked > quick:
                await asyncio.sleep(wait_s)
            writer.write(ANSWER)

    return shard


@pytest.mark.parametrize(("wait_s", "symptom"), [(0.5, Symptom.SLOW), (60.0, Symptom.SILENT)])
def test_a_late_answer_is_slow_and_one_beyond_patience_is_silence(raw_server, wait_s, symptom):
    async def main():
        async with raw_server(slow_after(3, wait_s=wait_s)) as port:
            url = f"http://127.0.0.1:{port}"
            async with Witness([url], patience_s=2.0) as witness:
                return await witness.look(url)

    assert asyncio.run(main()) == (symptom, symptom)


def test_a_route_that_is_broken_before_the_fault_is_no_place_for_a_witness(raw_server):
    async def refuses(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(whole(b"{}", 503))
        await writer.drain()

    async def main():
        async with raw_server(refuses) as port, Witness([f"http://127.0.0.1:{port}"]):
            pass

    with pytest.raises(WitnessError, match="shows status before the fault"):
        asyncio.run(main())


def test_a_route_that_refuses_before_the_fault_is_named():
    async def main():
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        async with Witness([f"http://127.0.0.1:{port}"]):
            pass

    with pytest.raises(WitnessError, match="cannot be connected to before the fault"):
        asyncio.run(main())


def test_a_pooled_connection_stays_open_after_a_look(raw_server):
    async def main():
        async with raw_server(slow_after(9, wait_s=0.0)) as port:
            url = f"http://127.0.0.1:{port}"
            async with dial(url) as streams:
                sights = [await observe(url, patience_s=5.0, pooled=streams) for _ in range(2)]
            return [sight.symptom for sight in sights]

    assert asyncio.run(main()) == [Symptom.OK, Symptom.OK]


@pytest.mark.parametrize(
    ("new", "pooled", "acts"),
    [
        (Symptom.OK, Symptom.CLOSED, True),
        (Symptom.SLOW, Symptom.CLOSED, True),
        (Symptom.OK, Symptom.OK, False),
        (Symptom.OK, Symptom.SLOW, False),
        (Symptom.CLOSED, Symptom.CLOSED, False),
    ],
)
def test_a_fault_acts_only_if_both_connections_show_it(new, pooled, acts):
    assert matches(FAULTS["keepalive_race"](), new, pooled) is acts
