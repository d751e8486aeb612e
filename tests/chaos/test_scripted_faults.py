"""Each scripted fault does what it says on a new and on a pooled connection, and heals."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from gymproof.chaos.faults import FAULTS
from gymproof.chaos.faults.base import Layer, Symptom, Target
from gymproof.chaos.faults.black_hole import BlackHole
from gymproof.chaos.faults.cut_body import CutBody
from gymproof.chaos.faults.idle_close import IdleClose
from gymproof.chaos.faults.keepalive_race import KeepaliveRace
from gymproof.chaos.faults.status import Status
from gymproof.chaos.faults.wrong_body import WrongBody
from gymproof.chaos.http1 import ResponseReader
from gymproof.chaos.interposer import Interposer
from gymproof.chaos.witness import Witness

WITHIN_S = 5.0
CHAT = b'{"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(CHAT), CHAT)
REFUSAL = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b"

CASES = [
    ("accept_close", {}),
    ("accept_reset", {}),
    ("close_after_request", {}),
    ("reset_after_request", {}),
    ("black_hole", {}),
    *(("cut_headers", {"how": how}) for how in ("fin", "rst")),
    *(
        ("cut_body", {"how": how, "framing": framing})
        for how in ("fin", "rst")
        for framing in ("length", "chunked", "close")
    ),
    *(("stall_body", {"framing": framing}) for framing in ("length", "chunked", "close")),
    *(("dribble_body", {"framing": framing}) for framing in ("length", "chunked", "close")),
    ("garbage", {}),
    ("big_header", {}),
    ("many_headers", {}),
    ("double_length", {}),
    *(("status", {"status": status}) for status in (200, 204, 304, 307, 429, 500, 502, 503, 504, 520, 599)),
    ("status", {"status": 503, "retry_after": 60}),
    *(("wrong_body", {"body": body}) for body in ("empty", "half_json", "html", "error")),
    ("abort", {}),
    ("keepalive_race", {}),
    ("idle_close", {}),
]


async def shard(reader, writer):
    """Answers every chat request, and refuses one whose body is "refuse me"."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
        writer.write(REFUSAL if body == b"refuse me" else ANSWER)


def process(port):
    """A shard's process as far as a scripted fault may know it: it has an address, and is left alone."""
    return SimpleNamespace(index=0, url=f"http://127.0.0.1:{port}")


@contextlib.asynccontextmanager
async def standing(raw_server):
    """A shard behind an interposer, as a fault's target."""
    async with raw_server(shard) as port, Interposer(port) as interposer:
        yield Target(process(port), interposer=interposer)


async def ask(port, body=b"{}"):
    """Ask once on a new connection; gives the reader with whatever came until it was whole or the connection ended."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = ResponseReader()
    try:
        writer.write(POST % (len(body), body))
        while not answer.whole and (data := await asyncio.wait_for(reader.read(1 << 16), WITHIN_S)):
            answer.feed(data)
    finally:
        writer.transport.abort()
    return answer


@pytest.mark.parametrize(("kind", "parameters"), CASES, ids=str)
def test_a_witness_sees_the_fault_act_and_sees_it_healed(raw_server, kind, parameters):
    fault = FAULTS[kind](**parameters)

    async def main():
        async with standing(raw_server) as target:
            async with Witness([target.interposer.url], patience_s=0.5) as witness:
                await fault.inject(target)
                acts, seen = await witness.sees(fault)
                await fault.heal(target)
                await fault.heal(target)
            async with Witness([target.interposer.url], slow_by_s=WITHIN_S) as healed:  # a busy machine is not ill
                return acts, seen, await healed.look(target.interposer.url)

    acts, seen, after = asyncio.run(main())

    assert acts, seen
    assert after == (Symptom.OK, Symptom.OK)


def test_every_scripted_fault_has_a_case():
    scripted = {kind for kind, fault in FAULTS.items() if fault.layer is Layer.SCRIPT}

    assert scripted == {kind for kind, _ in CASES}


@pytest.mark.parametrize(
    "kind", ["cut_headers", "cut_body", "stall_body", "dribble_body", "big_header", "double_length"]
)
def test_an_answer_that_is_no_200_passes_unchanged(raw_server, kind):
    async def main():
        async with standing(raw_server) as target:
            await FAULTS[kind]().inject(target)
            return (await ask(target.interposer.port, b"refuse me")).response()

    response = asyncio.run(main())

    assert (response.status, response.body) == (400, b"{}")


def test_a_redirect_points_at_the_shard_itself(raw_server):
    async def main():
        async with standing(raw_server) as target:
            await Status(status=307).inject(target)
            return target.shard.url, (await ask(target.interposer.port)).response()

    url, response = asyncio.run(main())

    assert (b"location", f"{url}/v1/chat/completions".encode()) in response.headers


def test_an_answer_cut_between_two_chunks_ends_on_a_chunk_boundary(raw_server):
    async def main():
        async with standing(raw_server) as target:
            await CutBody(framing="chunked").inject(target)
            reader, writer = await asyncio.open_connection("127.0.0.1", target.interposer.port)
            writer.write(POST % (2, b"{}"))
            got = await asyncio.wait_for(reader.read(), WITHIN_S)
            writer.close()
            return got

    half = CHAT[: len(CHAT) // 2]

    assert asyncio.run(main()).endswith(b"\r\n\r\n%x\r\n%b\r\n" % (len(half), half))


def test_half_a_json_document_has_the_framing_of_a_whole_one(raw_server):
    async def main():
        async with standing(raw_server) as target:
            await WrongBody(body="half_json").inject(target)
            return (await ask(target.interposer.port)).response()

    assert asyncio.run(main()).body == CHAT[: len(CHAT) // 2]


def test_a_black_hole_drops_syns_and_lets_waiting_ones_in_when_healed(raw_server):
    async def main():
        async with standing(raw_server) as target:
            port = target.interposer.port
            await BlackHole().inject(target)
            waiting = asyncio.ensure_future(ask(port))
            done, _ = await asyncio.wait({waiting}, timeout=0.3)
            await BlackHole().heal(target)
            return done, (await asyncio.wait_for(waiting, WITHIN_S)).response().status

    assert asyncio.run(main()) == (set(), 200)


def test_a_keepalive_race_answers_the_first_request_of_each_connection(raw_server):
    async def main():
        async with standing(raw_server) as target:
            await KeepaliveRace().inject(target)
            reader, writer = await asyncio.open_connection("127.0.0.1", target.interposer.port)
            writer.write(POST % (2, b"{}"))
            first = await asyncio.wait_for(reader.readuntil(CHAT), WITHIN_S)
            writer.write(POST % (2, b"{}"))
            second = await asyncio.wait_for(reader.read(), WITHIN_S)
            writer.close()
            return first, second

    first, second = asyncio.run(main())

    assert b"connection: close" not in first.lower()
    assert second == b""


def test_an_idle_connection_is_closed_but_not_a_busy_one(raw_server):
    async def main():
        async with standing(raw_server) as target:
            await IdleClose(after_s=0.2).inject(target)
            reader, writer = await asyncio.open_connection("127.0.0.1", target.interposer.port)
            for _ in range(3):
                writer.write(POST % (2, b"{}"))
                await asyncio.wait_for(reader.readuntil(CHAT), WITHIN_S)
            rest = await asyncio.wait_for(reader.read(), WITHIN_S)
            writer.close()
            return rest

    assert asyncio.run(main()) == b""


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("status", {"status": 199}),
        ("status", {}),
        ("big_header", {"value_bytes": 100}),
        ("cut_body", {"how": "hup"}),
        ("wrong_body", {"body": "poem"}),
        ("garbage", {"amount": 3}),
    ],
)
def test_parameters_that_make_no_fault_are_refused(kind, parameters):
    with pytest.raises(ValidationError):
        FAULTS[kind](**parameters)


def test_a_scripted_fault_without_an_interposer_says_so():
    with pytest.raises(ValueError, match="no interposer"):
        asyncio.run(BlackHole().inject(Target(process(1))))
