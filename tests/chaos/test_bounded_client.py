"""The client that keeps a contract's bounded retries, and stops where the real one would go on."""

import asyncio
import time

import pytest

from gymproof.chaos.clients import CLIENTS
from gymproof.chaos.clients.bounded import BoundedClient, EndlessCallError, GaveUpError, pause
from gymproof.chaos.clients.gym_like import open_session
from gymproof.chaos.clients.rollouts import UnusableAnswerError, usable_choice
from gymproof.validators import Handling, load_contract
from gymproof.validators.script import Address, End, Redirect, always, in_turn, nobody
from gymproof.validators.scripted_server import play
from gymproof.validators.wire import COMPLETION, OK, answer, chunked, plain

CONTRACTS = {name: load_contract(name) for name in ("nemo-gym", "openai")}
WITHIN_S = 0.3
STATUSES = (400, 404, 408, 409, 422, 429, 500, 501, 502, 503, 504, 520, 599)
BROKEN = {
    "closed": (always(End.FIN), "fin_after_request"),
    "reset": (always(End.RST), "rst_after_request"),
    "cut": (always(OK[:-10], End.FIN), "fin_in_body_200"),
    "cut chunk": (always(chunked(200, COMPLETION, last_chunk=False), End.FIN), "fin_in_chunked_200"),
    "garbage": (always(b"BLARGH not http\r\n\r\n", End.FIN), "garbage_then_fin"),
}


def ask(case, client="nemo-gym", path="chat"):
    """One call against a scripted server: what it raised or returned, how many requests it took, the pauses."""
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    async def scenario():
        async with play(case) as stage, open_session() as session:
            bounded = BoundedClient(stage.base_url, session, CONTRACTS[client], answer_within_s=WITHIN_S, sleep=sleep)
            try:
                made = await getattr(bounded, path)(model="m", messages=[])
            except (GaveUpError, EndlessCallError, UnusableAnswerError) as error:
                made = error
            return made, stage.requests, pauses

    return asyncio.run(scenario())


def expected(behaviour):
    """The error and the number of requests that the contract's row stands for."""
    if behaviour.handling in (Handling.UNBOUNDED, Handling.HANGS):
        return EndlessCallError, 1
    return GaveUpError, behaviour.tries


@pytest.mark.parametrize("client", CONTRACTS)
@pytest.mark.parametrize("status", STATUSES)
def test_it_asks_as_often_as_the_contract_says_and_stops_where_that_has_no_end(status, client):
    contract = CONTRACTS[client]
    made, requests, pauses = ask(always(plain(status)), client)

    assert (type(made), requests) == expected(contract.status(status))
    assert pauses == [pause(contract, tries) for tries in range(1, requests)]


@pytest.mark.parametrize("client", CONTRACTS)
@pytest.mark.parametrize("how", BROKEN)
def test_it_treats_a_broken_exchange_as_the_contract_says(how, client):
    case, row = BROKEN[how]
    made, requests, _ = ask(case, client)

    assert (type(made), requests) == expected(CONTRACTS[client].faults[row])


def test_nobody_listens():
    made, _, _ = ask(nobody(Address.REFUSED))

    assert isinstance(made, EndlessCallError)


def test_silence_is_cut_off():
    began = time.monotonic()
    made, requests, _ = ask(always(End.STALL))

    assert (type(made), requests) == (EndlessCallError, 1)
    assert str(made) == "no answer within 0.3 s"
    assert time.monotonic() - began >= WITHIN_S


def test_an_answer_that_stalls_inside_its_body_is_cut_off_too():
    assert isinstance(ask(always(OK[:-10], End.STALL))[0], EndlessCallError)


def test_a_bounded_retry_may_succeed():
    made, requests, pauses = ask(in_turn([plain(500)], [plain(500)], [OK]))

    assert (made["id"], requests, pauses) == ("chatcmpl-1", 3, [0.5, 0.5])


def test_a_redirect_is_not_followed():
    made, requests, _ = ask(always(Redirect(307, "http://127.0.0.1:{other}/")))

    assert (type(made), requests) == (EndlessCallError, 1)


@pytest.mark.parametrize("body", [b"", COMPLETION[:-20], b"<html>"])
def test_a_success_without_json_is_no_answer(body):
    assert isinstance(ask(always(answer(200, body)))[0], UnusableAnswerError)


def test_an_answer_without_logprobs_makes_a_turn():
    """Some routers drop them from every answer, which is judged elsewhere."""
    assert usable_choice(ask(always(OK))[0])["finish_reason"] == "stop"


def test_it_asks_for_generations_only():
    assert ask(always(plain(404)), path="tokenize")[:2] == ({"tokens": []}, 0)


def test_it_has_a_name_for_each_contract_that_judges():
    assert {f"{name}-bounded" for name in CONTRACTS} <= CLIENTS.keys()
