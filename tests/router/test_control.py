"""Who may change the fleet: a controller in the same process, the admin port."""

import asyncio
import contextlib
import http.client
import threading

import orjson
import pytest

from gymproof.router.impl import GenerationRouterImpl
from gymproof.router.sockets import bind


class Served:
    """Backends on a loop of their own thread, for the blocking interface."""

    def __init__(self, *backends):
        self.backends = backends
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self):
        self._thread.start()
        for backend in self.backends:
            asyncio.run_coroutine_threadsafe(backend.start(), self._loop).result(10)
        return self

    def __exit__(self, *_):
        for backend in self.backends:
            asyncio.run_coroutine_threadsafe(backend.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextlib.contextmanager
def serving(backends, **settings):
    options = {
        "backend_urls": [backend.url for backend in backends],
        "host": "127.0.0.1",
        "port": 0,
        "backend_timeout_s": 5.0,
        "connect_timeout_s": 1.0,
        "no_healthy_backend_status": 409,
    }
    impl = GenerationRouterImpl(**options | settings)
    impl.serve_in_background()
    try:
        yield impl
    finally:
        impl.close()


def post(url, path="/chat/completions", body=b"{}", method="POST", headers=None):
    host, _, base = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=10)
    with contextlib.closing(connection):
        connection.request(method, f"/{base}{path}" if base else path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read()


def test_the_url_serves_from_the_moment_it_is_known(kit):
    with Served(kit.Backend(kit.serve)) as served, serving(served.backends) as impl:
        assert impl.is_serving()
        assert impl.base_url().endswith("/v1")
        assert post(impl.base_url()) == (200, kit.completion)
    assert not impl.is_serving()


def test_a_taken_port_raises_in_the_caller_with_the_port_in_the_message():
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=str(port)), serving([], backend_urls=["http://h"], port=port):
            pytest.fail("it serves on a port that is taken")


def test_a_restarted_router_gets_the_same_port_at_once(kit):
    with Served(kit.Backend(kit.serve)) as served:
        with serving(served.backends) as impl:
            url = impl.base_url()
            post(url)
        port = int(url.rsplit(":", 1)[1].removesuffix("/v1"))
        for _ in range(5):
            with serving(served.backends, port=port):
                assert post(url)[0] == 200


def test_a_controller_pushes_full_sets(kit):
    with Served(kit.Backend(kit.serve), kit.Backend(kit.serve)) as served:
        first, second = served.backends
        with serving(served.backends, health_managed=True) as impl:
            impl.set_serving_backends([first.url, "http://unknown:1", "not a url"])
            statuses = {post(impl.base_url())[0] for _ in range(4)}
            only_first = (len(first.exchanges), len(second.exchanges))
            impl.set_serving_backends([second.url.removesuffix("/v1")])
            post(impl.base_url())
            impl.set_serving_backends([])
            none = post(impl.base_url())[0]

    assert (statuses, none) == ({200}, 409)
    assert only_first == (4, 0)
    assert len(second.exchanges) == 1


def test_outcomes_are_drained_together_and_reset(kit):
    async def third_fails(exchange):
        await (kit.say(b"HTTP/1.1 2", then_close=True) if exchange.number == 3 else kit.serve)(exchange)

    quiet = {"policy": "round_robin", "probe_interval_s": 60.0}  # a probe would be an exchange, too
    with Served(kit.Backend(third_fails), kit.Backend(kit.serve)) as served, serving(served.backends, **quiet) as impl:
        for _ in range(8):
            assert post(impl.base_url())[0] == 200
        drained = impl.drain_backend_outcomes()

        assert sum(successes for successes, _ in drained.values()) == 8
        assert drained[served.backends[0].url] == (2, 1)
        assert impl.drain_backend_outcomes() == {}
        assert impl.metrics()["answers"] == 8
        assert impl.metrics()["in_flight"] == 0


# The admin port


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    return path


def admin(impl, path, body=None, token=None, method="POST"):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    status, answer = post(impl.admin_url(), path, orjson.dumps(body), method, headers)
    return status, answer


def test_the_admin_port_shows_health_readiness_and_metrics(kit):
    with Served(kit.Backend(kit.serve)) as served, serving(served.backends, admin_port=0) as impl:
        post(impl.base_url())
        assert admin(impl, "/health", method="GET")[0] == 200
        assert admin(impl, "/ready", method="GET")[0] == 200
        status, metrics = admin(impl, "/metrics", method="GET")
        nowhere = admin(impl, "/nowhere", method="GET")

    assert status == 200
    assert b'gym_router_answers_total{reason="served",status="200"} 1.0' in metrics
    assert b'outcome="served"' in metrics
    assert b"gym_router_request_seconds_count 1.0" in metrics
    assert nowhere[0] == 404
    assert orjson.loads(nowhere[1])["error"]["message"] == "Not Found"


def test_what_changes_state_needs_the_token(kit, token_file):
    with Served(kit.Backend(kit.serve)) as served:
        url = served.backends[0].url
        with serving(served.backends, admin_port=0, admin_token_file=token_file, health_managed=True) as impl:
            assert admin(impl, "/serving", {"urls": [url]})[0] == 401
            assert admin(impl, "/serving", {"urls": [url]}, "wrong")[0] == 401
            assert admin(impl, "/ready", method="GET")[0] == 503
            assert admin(impl, "/serving", {"urls": [url]}, "s3cret")[0] == 200
            assert admin(impl, "/ready", method="GET")[0] == 200
            assert admin(impl, "/restarting", {"url": url}, "s3cret")[0] == 200
            assert post(impl.base_url())[0] == 409
            assert admin(impl, "/refit", {"url": url}, "s3cret")[0] == 200
            assert post(impl.base_url())[0] == 200
            assert admin(impl, "/refit", {"url": "http://unknown"}, "s3cret")[0] == 404
            assert admin(impl, "/backends", {"urls": ["ftp://x"]}, "s3cret")[0] == 422
            assert admin(impl, "/backends", {"nothing": 1}, "s3cret")[0] == 422
            assert admin(impl, "/backends", {"urls": []}, "s3cret")[0] == 422
            assert admin(impl, "/backends", {"urls": ["http://h"]}, "s3cret")[0] == 200
            assert b'"url":"http://h"' in admin(impl, "/backends", method="GET")[1]
        with serving(served.backends, admin_port=0) as impl:
            assert admin(impl, "/refit", {"url": url}, "s3cret")[0] == 403


def test_a_pause_is_announced_in_the_process_or_on_the_admin_port(kit, token_file):
    with (
        Served(kit.Backend(kit.serve)) as served,
        serving(served.backends, admin_port=0, admin_token_file=token_file) as impl,
    ):
        impl.announce_pause()
        by_call = impl.metrics()["paused"], post(impl.base_url())[0]
        impl.announce_resume()
        after = impl.metrics()["paused"]
        refused = admin(impl, "/pause", {})[0], impl.metrics()["paused"]
        paused = admin(impl, "/pause", {}, "s3cret"), impl.metrics()["paused"]
        resumed = admin(impl, "/resume", {}, "s3cret"), impl.metrics()["paused"]

    assert (by_call, after, refused) == ((1, 200), 0, (401, 0))
    assert paused == ((200, b'{"paused":true}'), 1)
    assert resumed == ((200, b'{"paused":false}'), 0)


def test_who_serves_is_not_replaced_by_urls_of_which_none_is_known(kit, token_file):
    with (
        Served(kit.Backend(kit.serve)) as served,
        serving(served.backends, admin_port=0, admin_token_file=token_file, health_managed=True) as impl,
    ):
        url = served.backends[0].url
        admin(impl, "/serving", {"urls": [url]}, "s3cret")
        status, answer = admin(impl, "/serving", {"urls": ["http://a", "http://me:pass@b"]}, "s3cret")
        still = post(impl.base_url())[0]
        partly = admin(impl, "/serving", {"urls": ["http://a", url]}, "s3cret")
        none = admin(impl, "/serving", {"urls": []}, "s3cret")[0]

        assert (status, still, partly[0], none, post(impl.base_url())[0]) == (422, 200, 200, 200, 409)
    assert "'http://a', 'http://***@b'" in orjson.loads(answer)["error"]["message"]
    assert orjson.loads(partly[1])["unknown"] == ["http://a"]


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_of_the_token_is_read_in_any_case(token_file, scheme):
    with serving([], backend_urls=["http://h"], admin_port=0, admin_token_file=token_file, health="off") as impl:
        headers = {"Authorization": f"{scheme} s3cret"}
        status, _ = post(impl.admin_url(), "/pause", b"", headers=headers)

    assert status == 200


@pytest.mark.parametrize(
    ("method", "path", "token", "status", "reason"),
    [
        ("POST", "/pause", None, 401, "unauthorized"),
        ("POST", "/refit", "s3cret", 422, "bad_request"),
        ("GET", "/nowhere", None, 404, "not_found"),
        ("DELETE", "/health", None, 405, "method_not_allowed"),
    ],
)
def test_errors_of_the_admin_port_look_like_the_others(kit, token_file, method, path, token, status, reason):
    async def story():
        async with kit.Stage(kit.serve, admin_port=0, admin_token_file=token_file) as stage:
            client = await stage.client(stage.admin_port)
            return await client.ask(b"{}", path, method, f"Authorization: Bearer {token}")

    reply = asyncio.run(story())

    assert (reply.status, reply.reason) == (status, reason)
    assert reply.headers["content-type"] == "application/json"
    assert reply.json["error"].keys() == {"message", "type", "code", "param"}
    assert reply.json["error"]["code"] == reason
    assert ("allow" in reply.headers) is (status == 405)


def test_who_leaves_the_set_finishes_its_work_and_gets_no_more(kit):
    release = asyncio.Event()

    async def slow(exchange):
        await release.wait()
        exchange.send(kit.answer())

    async def story():
        async with kit.Stage(slow) as stage:
            leaving, staying = stage.backends[0], kit.Backend(kit.serve)
            await staying.start()
            client = await stage.client()
            client.send()
            await stage.until(lambda: len(leaving.exchanges) == 1, "the request is delivered")
            stage.router.set_members([staying.url])
            states = stage.states()
            others = [(await stage.ask()).status for _ in range(3)]
            release.set()
            last = await client.receive()
            known = len(stage.states())
            await stage.router.stop(drain=False)
            await staying.stop()
            return states, others, last.status, len(leaving.exchanges), known

    assert asyncio.run(story()) == (["retired", "suspect"], [200] * 3, 200, 1, 1)


def test_background_work_that_dies_is_told_in_the_log(kit, monkeypatch, caplog):
    async def dies(*_):
        raise RuntimeError("no such luck")

    monkeypatch.setattr("gymproof.router.probes.Monitor.run", dies)

    async def story():
        async with kit.Stage(kit.serve) as stage:
            await stage.until(lambda: "monitor has died" in caplog.text, "it is told")

    asyncio.run(story())

    assert "no such luck" in caplog.text
