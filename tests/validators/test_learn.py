"""Measuring, on clients whose behaviour is known."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest

from gymproof.validators import Behaviour, Handling
from gymproof.validators.cases import FAULT_CASES, STATUS_CASES
from gymproof.validators.learn import learn, observe
from gymproof.validators.script import End, always, in_turn, pooled
from gymproof.validators.wire import OK, plain

ENDLESS = Behaviour(Handling.UNBOUNDED, None)
HEALTHY = always(OK)


class Retrying:
    """Tries a call `tries` times (None: for ever) on any error status and on connection errors."""

    def __init__(self, tries: int | None = 1) -> None:
        self.tries = tries
        self.session = aiohttp.ClientSession()

    async def chat(self, base_url, /, **body):
        tried = 0
        while True:
            tried += 1
            try:
                async with self.session.post(f"{base_url}/chat/completions", json=body) as response:
                    response.raise_for_status()
                    return json.loads(await response.read())
            except aiohttp.ClientError:
                if tried == self.tries:
                    raise
            await asyncio.sleep(0.001)


@asynccontextmanager
async def retrying(tries: int | None = 1):
    client = Retrying(tries)
    async with client.session:
        yield client


def watch(case, tries: int | None = 1, **options) -> Behaviour:
    async def scenario():
        async with retrying(tries) as client:
            return await observe(client, case, **options)

    return asyncio.run(scenario())


def test_an_answer_is_returned_after_one_try():
    assert watch(HEALTHY) == Behaviour(Handling.RETURNED, 1)


def test_an_error_is_raised_after_as_many_tries_as_the_server_saw():
    assert watch(always(plain(500)), tries=3) == Behaviour(Handling.RAISED, 3, "ClientResponseError")


def test_a_client_that_goes_on_past_the_cap_is_unbounded():
    assert watch(always(plain(503)), tries=None) == ENDLESS


def test_a_client_that_stops_just_under_the_cap_is_bounded():
    assert watch(always(plain(503), cap=20), tries=19).tries == 19


def test_a_mended_server_shows_a_client_that_came_back():
    assert watch(in_turn([plain(500)], [plain(500)], [OK]), tries=5) == Behaviour(Handling.RETURNED, 3)


def test_silence_is_a_hang():
    assert watch(always(End.STALL), patience_s=0.3) == Behaviour(Handling.HANGS, 1)


def test_a_refused_address_shows_who_is_still_trying_when_it_heals():
    refused = FAULT_CASES["connection_refused"]

    assert watch(refused, tries=None, heal_after_s=0.3) == ENDLESS
    assert watch(refused, tries=2, heal_after_s=2.0) == Behaviour(Handling.RAISED, 0, "ClientConnectorError")


def test_a_name_that_does_not_resolve_counts_look_ups():
    case = FAULT_CASES["name_not_found"]

    assert watch(case, tries=None) == ENDLESS
    assert watch(case, tries=2) == Behaviour(Handling.RAISED, 2, "ClientConnectorDNSError")


def test_the_warming_call_is_not_counted():
    assert watch(pooled([OK], [plain(409)], gap_s=0.01)).tries == 1


def test_learning_gives_a_row_a_case_and_reports_each():
    seen = {}
    statuses = {status: STATUS_CASES[status] for status in (200, 404, 500)}
    faults = {name: FAULT_CASES[name] for name in ("fin_after_request", "body_not_json")}

    contract = asyncio.run(
        learn(lambda: retrying(2), statuses, faults, client="two-tries", version="1", progress=seen.__setitem__)
    )

    assert (contract.client, contract.version) == ("two-tries", "1")
    assert list(contract.statuses) == [200, 404, 500]
    assert contract.status(404) == Behaviour(Handling.RAISED, 2, "ClientResponseError")
    assert contract.faults["fin_after_request"] == Behaviour(Handling.RAISED, 2, "ServerDisconnectedError")
    assert contract.faults["body_not_json"] == Behaviour(Handling.RAISED, 1, "JSONDecodeError")
    assert set(seen) == {"status 200", "status 404", "status 500", *faults}


def test_a_client_that_cannot_be_opened_ends_the_measurement():
    @asynccontextmanager
    async def broken():
        raise RuntimeError("no client")
        yield

    with pytest.raises(RuntimeError, match="no client"):
        asyncio.run(learn(broken, {200: HEALTHY}, {}))
