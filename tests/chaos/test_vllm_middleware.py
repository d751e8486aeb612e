"""The log that is written inside a real API server, by its middleware alone."""

import asyncio
import hashlib
import sys

import pytest

from gymproof.chaos.history import Delivery
from gymproof.chaos.served import read_served
from gymproof.chaos.tags import tag
from gymproof.chaos.vllm.inside import PROGRAMS

BODY = f'{{"messages": "{tag("r0.t1")}"}}'.encode()
DISCONNECT = {"type": "http.disconnect"}


@pytest.fixture
def middleware(monkeypatch, tmp_path):
    """The class as vLLM finds it: by its name on the path, without the package around it."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    monkeypatch.setenv("GYMPROOF_SHARD_LOG", str(tmp_path / "log"))
    from gymproof_middleware import RecordPosts  # noqa: PLC0415

    yield RecordPosts
    for name in [name for name in sys.modules if name.startswith(("gymproof_middleware", "gymproof_chaos"))]:
        del sys.modules[name]


@pytest.fixture
def serve(middleware, tmp_path):
    """Runs an application behind the middleware for one request; what was sent, and what the log says."""

    def serve(app, *messages, method="POST", path="/v1/chat/completions"):
        waiting, sent = list(messages), []

        async def receive():
            return waiting.pop(0)

        async def send(message):
            sent.append((message, read_served(tmp_path / "log", 0)))

        scope = {"type": "http", "method": method, "path": path}
        asyncio.run(middleware(app)(scope, receive, send))
        return sent, read_served(tmp_path / "log", 0)

    return serve


def request(*pieces):
    last = len(pieces) - 1
    return [{"type": "http.request", "body": piece, "more_body": number < last} for number, piece in enumerate(pieces)]


async def read(receive):
    message = await receive()
    body = message["body"]
    while message["more_body"]:
        message = await receive()
        body += message["body"]
    return body


def answering(status, *pieces):
    async def app(_scope, receive, send):
        assert await read(receive) == BODY
        await send({"type": "http.response.start", "status": status, "headers": []})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    return app


def test_an_answer_is_logged_with_its_hashes_before_its_end_is_sent(serve):
    sent, (served,) = serve(answering(200, b"ab", b"c"), *request(BODY[:5], BODY[5:]))

    assert (served.call, served.path, served.ending, served.status) == (
        "r0.t1",
        "/v1/chat/completions",
        Delivery.ANSWERED,
        200,
    )
    assert served.request_sha256 == hashlib.sha256(BODY).hexdigest()
    assert served.response_sha256 == hashlib.sha256(b"abc").hexdigest()
    assert [log[0].ending for _, log in sent] == [*[Delivery.RUNNING] * 3, Delivery.ANSWERED]


def test_a_client_that_leaves_is_logged_once(serve):
    async def app(_scope, receive, _send):
        await read(receive)
        assert (await receive())["type"] == "http.disconnect"
        assert (await receive())["type"] == "http.disconnect"

    _, (served,) = serve(app, *request(BODY), DISCONNECT, DISCONNECT)

    assert (served.ending, served.status) == (Delivery.CANCELLED, None)


def test_a_disconnect_after_the_answer_is_none(serve):
    async def app(scope, receive, send):
        await answering(200, b"x")(scope, receive, send)
        await receive()

    _, (served,) = serve(app, *request(BODY), DISCONNECT)

    assert served.ending is Delivery.ANSWERED


def test_an_application_that_raises_was_answered_for_with_a_500(serve, tmp_path):
    async def app(_scope, _receive, _send):
        raise RuntimeError("engine")

    with pytest.raises(RuntimeError, match="engine"):
        serve(app, *request(BODY))

    (served,) = read_served(tmp_path / "log", 0)
    assert (served.ending, served.status, served.response_sha256) == (Delivery.ANSWERED, 500, "")


def test_half_a_request_and_a_get_are_not_logged(serve):
    async def never(_scope, _receive, _send):
        raise AssertionError("nobody waits for this")

    async def get(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200})

    assert serve(never, {"type": "http.request", "body": b"{", "more_body": True}, DISCONNECT) == ([], [])
    assert serve(get, method="GET", path="/health")[1] == []
