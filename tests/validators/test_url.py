"""Asking servers over real sockets."""

import asyncio
import functools
import threading
from contextlib import asynccontextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from aiohttp import web

from gymproof.validators import CannotTellError, Verdict
from gymproof.validators.findings import worst
from gymproof.validators.questions import QUESTIONS
from gymproof.validators.raw_http import parse_target
from gymproof.validators.script import Address, Case, End, always, in_turn, nobody
from gymproof.validators.scripted_server import play
from gymproof.validators.url import judge_url
from gymproof.validators.wire import COMPLETION, ERROR, OK, answer, chunked, head, plain

FAST = {"timeout_s": 5.0, "hold_s": 0.1}


def ask(case: Case, **options):
    async def scenario():
        async with play(case) as stage:
            return {finding.key: finding for finding in await judge_url(stage.base_url, **{**FAST, **options})}

    return asyncio.run(scenario())


def verdicts(case: Case, **options) -> dict[str, Verdict]:
    return {key: finding.verdict for key, finding in ask(case, **options).items()}


@asynccontextmanager
async def a_good_router():
    """What every question should meet: JSON errors, bounded statuses, connections kept."""

    def error(status: int) -> web.Response:
        body = {"error": {"message": "m", "type": "t", "code": "c", "param": None}}
        return web.json_response(body, status=status)

    @web.middleware
    async def shaped(request, handler):
        try:
            return await handler(request)
        except web.HTTPException as refused:
            return error(refused.status)

    async def refuse(_request):
        return error(422)

    async def models(_request):
        return web.json_response({"data": []})

    app = web.Application(middlewares=[shaped])
    app.router.add_get("/v1/models", models)
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize"):
        app.router.add_post(path, refuse)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=75)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_a_good_router_is_safe_however_its_url_is_written(suffix):
    async def scenario():
        async with a_good_router() as url:
            return await judge_url(url + suffix, **FAST)

    findings = asyncio.run(scenario())

    assert {f.verdict for f in findings} <= {Verdict.SAFE, Verdict.CAUTION}
    gym_s_own = [f for f in findings if f.key in QUESTIONS and QUESTIONS[f.key].asked_by_gym]
    assert {f.verdict for f in gym_s_own} == {Verdict.SAFE}
    assert findings[-1].key == "keep-alive"
    assert findings[-1].verdict is Verdict.SAFE


def test_every_question_is_asked_once_and_keep_alive_takes_two():
    async def scenario():
        async with play(always(plain(422))) as stage:
            await judge_url(stage.base_url, **FAST)
            return stage.requests

    assert asyncio.run(scenario()) == len(QUESTIONS) + 2


@pytest.mark.parametrize(
    "case",
    [
        always(plain(503)),
        always(plain(307)),
        always(End.FIN),
        always(End.RST),
        always(b"SSH-2.0\r\n", End.FIN),
        always(b"HTTP/1.1 200 OK\r\nContent-", End.FIN),
        always(answer(200, COMPLETION)[:-5], End.FIN),
        always(chunked(200, COMPLETION, last_chunk=False), End.FIN),
        always(answer(500, ERROR, [f"Content-Length: {len(ERROR)}"])),
        always(answer(500, ERROR, ["X-Big: " + "a" * 9000])),
        always(answer(200)),
    ],
)
def test_a_router_that_does_gym_harm_is_unsafe(case):
    found = verdicts(case)

    assert found["chat"] is Verdict.UNSAFE
    assert found["models"] is Verdict.UNSAFE


def test_a_router_that_says_nothing_cannot_be_told():
    found = verdicts(always(End.STALL), timeout_s=0.3)

    assert set(found.values()) == {Verdict.UNKNOWN}


def test_an_answer_may_be_chunked_or_end_with_the_connection_or_come_after_early_hints():
    for raw in (
        [chunked(422, ERROR)],
        [answer(422, ERROR, ["Connection: close"], length=False), End.FIN],
        [head(103), answer(422, ERROR)],
    ):
        assert verdicts(always(*raw))["chat"] is Verdict.SAFE


def test_an_idle_connection_that_is_closed_is_a_caution():
    found = ask(in_turn([plain(422), End.FIN]), hold_s=0.2)

    assert found["keep-alive"].verdict is Verdict.CAUTION
    assert "did not last" in found["keep-alive"].problem


def test_a_wrong_answer_to_a_senseless_request_is_a_caution():
    assert ask(always(OK))["unknown path"].verdict is Verdict.CAUTION


def test_a_server_of_files_is_no_router(tmp_path):
    """It answers POST with 501, and a path that it does not have with 404."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(SimpleHTTPRequestHandler, directory=tmp_path))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        findings = asyncio.run(judge_url(f"http://127.0.0.1:{server.server_port}/v1", **FAST))
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
    found = {finding.key: finding for finding in findings}

    assert found["chat"].verdict is Verdict.UNSAFE
    assert "serves no /v1/chat/completions" in found["chat"].problem
    assert worst(findings) is Verdict.UNSAFE


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host/v1", "http://", "http://host:99999/v1", "nonsense"])
def test_what_is_no_url_is_bad_input(url):
    with pytest.raises(CannotTellError):
        asyncio.run(judge_url(url, timeout_s=1))


def test_nobody_at_the_address_cannot_be_told():
    async def scenario():
        async with play(nobody(Address.REFUSED), heal_after_s=60) as stage:
            await judge_url(stage.base_url, **FAST)

    with pytest.raises(CannotTellError, match="no connection"):
        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "host", "port", "prefix"),
    [
        ("http://h:8000/v1", "h", 8000, ""),
        ("http://h/base/v1/", "h", 80, "/base"),
        ("https://h", "h", 443, ""),
        ("http://[::1]:9/v1", "::1", 9, ""),
    ],
)
def test_a_url_is_taken_apart(url, host, port, prefix):
    target = parse_target(url)

    assert (target.host, target.port, target.prefix) == (host, port, prefix)


def test_a_request_is_worded_as_gym_words_it():
    request = parse_target("http://[::1]:9/base/v1").request("POST", "/tokenize", body=b"{")

    assert request.startswith(b"POST /base/tokenize HTTP/1.1\r\nHost: [::1]:9\r\n")
    assert b"Content-Type: application/json\r\nContent-Length: 1\r\n\r\n{" in request
    assert b"Accept-Encoding: gzip, deflate" in request
