"""The pure parts: URLs, headers, judging, streams' marks, poison, limits."""

import pytest

from gymproof.router.config import ConfigError
from gymproof.router.failures import Outcome
from gymproof.router.headers import HeadFilter, passed_back, request_head
from gymproof.router.judge import judge
from gymproof.router.limits import in_flight_limit
from gymproof.router.poison import PoisonMemory, is_poison
from gymproof.router.sse import StreamWatch, has_event
from gymproof.router.surface import outside
from gymproof.router.urls import BadBackendUrlError, parse_backend

# URLs


@pytest.mark.parametrize(
    ("url", "authority", "base"),
    [
        ("http://10.0.0.1:8000", b"10.0.0.1:8000", b""),
        ("http://10.0.0.1:8000/", b"10.0.0.1:8000", b""),
        ("http://10.0.0.1:8000/v1", b"10.0.0.1:8000", b""),
        ("http://10.0.0.1:8000/v1/", b"10.0.0.1:8000", b""),
        ("http://host/prefix/v1", b"host", b"/prefix"),
        ("http://host/prefix/", b"host", b"/prefix"),
        ("https://host", b"host", b""),
        ("http://[::1]:8000/v1", b"[::1]:8000", b""),
        (" http://host:80 ", b"host", b""),
    ],
)
def test_a_backend_url_may_be_written_in_many_ways(url, authority, base):
    endpoint = parse_backend(url)

    assert (endpoint.authority, endpoint.base_path) == (authority, base)


def test_spellings_of_one_backend_have_one_key():
    spellings = ["http://h:80", "http://h/", "http://h/v1", "http://H:80/v1/"]

    assert len({parse_backend(url).key for url in spellings}) == 1


@pytest.mark.parametrize(
    "url",
    ["", "host:8000", "ftp://h", "http://", "http://h:0", "http://h:99999", "http://h:x", "http://u@h", "http://h/?q",
     "http://h/#f", "http://h\u00e9", "http://h /v1", "http://[::1"],
)  # fmt: skip
def test_an_unusable_url_is_refused_by_name(url):
    with pytest.raises(BadBackendUrlError, match="backend URL"):
        parse_backend(url)


# Headers


def filtered(*headers):
    head = HeadFilter()
    for name, value in headers:
        head.add(name, value)
    return head


def test_end_to_end_headers_are_forwarded_as_they_came():
    kept = [(b"Authorization", b"Bearer k"), (b"X-Session-ID", b"s"), (b"traceparent", b"00-1"), (b"x-odd", b" \xff")]

    assert filtered(*kept).lines() == b"".join(b"%b: %b\r\n" % pair for pair in kept)


@pytest.mark.parametrize(
    "name",
    [b"Host", b"Connection", b"Keep-Alive", b"TE", b"Transfer-Encoding", b"Upgrade", b"Expect", b"Content-Length"],
)
def test_what_belongs_to_one_hop_is_not_forwarded(name):
    assert filtered((name, b"1")).lines() == b""


def test_headers_that_connection_names_are_not_forwarded():
    head = filtered((b"X-Private", b"1"), (b"Connection", b"keep-alive, x-private"), (b"X-Public", b"2"))

    assert head.lines() == b"X-Public: 2\r\n"


@pytest.mark.parametrize(
    ("offered", "asked"),
    [
        (b"gzip, deflate", b"gzip, deflate"),
        (b"gzip, deflate, br, zstd", b"gzip, deflate"),
        (b"br;q=1.0", b"identity"),
        (b"identity", b"identity"),
    ],
)
def test_a_backend_is_not_asked_for_codings_that_gym_cannot_read(offered, asked):
    assert filtered((b"Accept-Encoding", offered)).lines() == b"Accept-Encoding: %b\r\n" % asked


def test_the_router_notes_what_it_has_to_know():
    head = filtered((b"content-length", b"12"), (b"Expect", b"100-Continue"), (b"X-Request-Id", b"r1"))

    assert (head.content_length, head.expect, head.request_id) == (12, b"100-continue", b"r1")


def test_a_request_head_has_the_backends_host_and_its_own_length():
    head = request_head(b"POST", b"/p/tokenize?a=%27", b"h:1", b"A: b\r\n", 3)

    assert head == b"POST /p/tokenize?a=%27 HTTP/1.1\r\nHost: h:1\r\nA: b\r\nContent-Length: 3\r\n\r\n"
    assert b"Content-Length" not in request_head(b"GET", b"/v1/models", b"h:1", b"", 0)


def test_few_response_headers_pass_back():
    upstream = [
        (b"content-type", b"application/json"), (b"server", b"uvicorn"), (b"set-cookie", b"a=b"),
        (b"transfer-encoding", b"chunked"), (b"content-type", b"text/html"), (b"x-request-id", b"x" * 9000),
    ]  # fmt: skip

    assert passed_back(upstream) == (("content-type", "application/json"),)


# Surface


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize"])
def test_gyms_endpoints_take_a_post(path):
    assert outside("POST", path) is None
    assert outside("GET", path).status == 405
    assert dict(outside("GET", path).headers)["Allow"] == "POST"


@pytest.mark.parametrize("path", ["/update_weights", "/metrics", "/pause", "/health"])
def test_paths_of_one_engine_are_not_forwarded_and_the_404_says_where_to_send_them(path):
    answer = outside("POST", path)

    assert answer.status == 404
    assert b"admin port" in answer.body


def test_other_paths_are_not_forwarded():
    assert outside("POST", "/v1/embeddings").status == 404


# Judging


@pytest.mark.parametrize(
    "body", [b'{"data":[]}', b'{"tokens":[1],"count":1}', b'{"output":[],"error":null}', b' {"choices":[]}\n', b"{}"]
)
def test_any_json_object_of_a_2xx_is_served(body):
    assert judge(200, [], body, 1 << 20)[0] is Outcome.SERVED


@pytest.mark.parametrize("body", [b"[]", b"null", b"1", b"\xef\xbb\xbf{}", b'{"a":"\xff"}', b'{"a":Infinity}', b"{}x"])
def test_a_2xx_that_gym_cannot_use_is_invalid(body):
    assert judge(200, [], body, 1 << 20)[0] is Outcome.INVALID


def test_the_word_abort_in_a_text_is_no_abort():
    body = b'{"choices":[{"message":{"content":"\\"finish_reason\\": \\"abort\\""},"finish_reason":"stop"}]}'

    assert judge(200, [], body, 1 << 20)[0] is Outcome.SERVED


def test_a_body_that_inflates_over_the_limit_is_invalid():
    import gzip  # noqa: PLC0415

    bomb = gzip.compress(b" " * 100_000 + b"{}")

    assert judge(200, [(b"content-encoding", b"gzip")], bomb, 1000)[0] is Outcome.INVALID


@pytest.mark.parametrize(("status", "outcome"), [(101, Outcome.ERRED), (304, Outcome.REDIRECTED), (999, Outcome.ERRED)])
def test_odd_statuses_are_failures(status, outcome):
    assert judge(status, [], b"", 1)[0] is outcome


# Streams


def test_marks_are_found_across_pieces():
    watch = StreamWatch()
    for piece in (b'data: {"er', b'ror": {}}\n\n', b"data: [DO", b"NE]\n\n"):
        watch.feed(piece)

    assert (watch.failed, watch.done) == (True, True)


def test_an_error_that_is_only_talked_about_is_none():
    watch = StreamWatch()
    watch.feed(b'data: {"choices":[{"delta":{"content":"data: {\\"error\\": 1}"}}]}\n\n')

    assert not watch.failed


def test_an_event_ends_with_an_empty_line():
    assert has_event(b"data: x\n\n")
    assert has_event(b"data: x\r\n\r\n")
    assert not has_event(b"data: x\n")


# Poison


def test_a_request_that_broke_shards_while_others_were_served_is_poison():
    assert is_poison({"a": 10.0, "b": 20.0, "c": 30.0}, {"a": 5.0, "b": 15.0, "c": 25.0, "d": 31.0}, after=3)


def test_a_fault_of_the_whole_fleet_makes_no_poison():
    broke = {"a": 10.0, "b": 20.0, "c": 30.0}

    assert not is_poison(broke, {"a": 5.0, "b": 6.0, "c": 7.0}, after=3)  # nobody was served meanwhile
    assert not is_poison(broke, {"a": 11.0, "b": 6.0, "c": 29.0}, after=3)  # one of them works again
    assert not is_poison({"a": 10.0, "b": 20.0}, {"c": 30.0}, after=3)  # too few


def test_the_memory_of_failures_is_small_and_short():
    memory = PoisonMemory()
    for n in range(1000):
        memory.broke(b"%d" % n, "a", now=float(n) / 1000)

    assert len(memory._entries) <= 256
    memory.broke(b"late", "a", now=1e6)
    assert list(memory._entries) == [b"late"]
    memory.expire(2e6)
    assert not memory


# Open files


def test_the_open_file_limit_bounds_the_requests_in_flight():
    assert in_flight_limit(1128, None) == 500
    assert in_flight_limit(1128, 300) == 300
    with pytest.raises(ConfigError, match="too few open files"):
        in_flight_limit(1128, 501)
    with pytest.raises(ConfigError, match="too few open files"):
        in_flight_limit(256, None)
