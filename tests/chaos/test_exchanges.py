"""The wiretap's reading of bytes, without sockets."""

import hashlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymproof.chaos.exchanges import Exchanges
from gymproof.chaos.history import Ending
from gymproof.chaos.tags import tag

BODY = f'{{"messages": [{{"role": "user", "content": "{tag("r1.t0")} hi"}}]}}'.encode()
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
ANSWER = b'{"choices": []}'
HEAD = b"HTTP/1.1 200 OK\r\nX-Router-Reason: none\r\nContent-Length: %d\r\n" % len(ANSWER)
RESPONSE = HEAD + b"\r\n" + ANSWER
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n" + ANSWER[:7] + b"\r\n8\r\n" + ANSWER[7:] + b"\r\n"
)
CLOSING = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


def sha(data):
    return hashlib.sha256(data).hexdigest()


def follow(*steps):
    """Play ("ask" | "answer", bytes) and ("fin" | "rst" | "left" | "refused" | "stop") steps, a second apart."""
    attempts = []
    exchanges = Exchanges(attempts.append)
    for now, step in enumerate(steps):
        match step:
            case ("ask", data):
                exchanges.request_bytes(data, float(now))
            case ("answer", data):
                exchanges.response_bytes(data, float(now))
            case "fin" | "rst":
                exchanges.router_left(float(now), reset=step == "rst")
            case "left":
                exchanges.all_ended(Ending.CLIENT_LEFT, float(now))
            case "refused":
                exchanges.all_ended(Ending.REFUSED, float(now))
            case "stop":
                exchanges.all_ended(Ending.PENDING, None)
    return attempts


def only(*steps):
    (attempt,) = follow(*steps)
    return attempt


def test_a_whole_exchange_is_one_complete_attempt_with_hashes_of_both_bodies():
    attempt = only(("ask", REQUEST), ("answer", RESPONSE))

    assert (attempt.call, attempt.path, attempt.status) == ("r1.t0", "/v1/chat/completions", 200)
    assert (attempt.ending, attempt.started, attempt.ended) == (Ending.COMPLETE, 0.0, 1.0)
    assert (attempt.request_sha256, attempt.response_sha256) == (sha(BODY), sha(ANSWER))
    assert (attempt.response_bytes, attempt.reason) == (len(ANSWER), "none")


def test_a_chunked_body_has_the_hash_of_what_the_chunks_carry():
    assert only(("ask", REQUEST), ("answer", CHUNKED + b"0\r\n\r\n")).response_sha256 == sha(ANSWER)


@pytest.mark.parametrize(
    ("steps", "ending"),
    [
        ([("answer", RESPONSE[:-3]), "fin"], Ending.TRUNCATED),
        ([("answer", RESPONSE[:-3]), "rst"], Ending.TRUNCATED),
        ([("answer", HEAD + b"\r\n"), "fin"], Ending.TRUNCATED),
        ([("answer", CHUNKED), "fin"], Ending.TRUNCATED),
        ([("answer", CHUNKED), "rst"], Ending.TRUNCATED),
        ([("answer", CLOSING + ANSWER), "fin"], Ending.COMPLETE),
        ([("answer", CLOSING + ANSWER), "rst"], Ending.TRUNCATED),
        (["fin"], Ending.NO_ANSWER),
        (["rst"], Ending.NO_ANSWER),
        ([("answer", HEAD[:-9]), "fin"], Ending.NO_ANSWER),
        ([("answer", HEAD), "rst"], Ending.NO_ANSWER),
        (["left"], Ending.CLIENT_LEFT),
        ([("answer", RESPONSE[:-3]), "left"], Ending.CLIENT_LEFT),
        (["refused"], Ending.REFUSED),
        (["stop"], Ending.PENDING),
        ([("answer", RESPONSE[:-3]), "stop"], Ending.PENDING),
    ],
)
def test_each_way_to_end_has_its_name(steps, ending):
    assert only(("ask", REQUEST), *steps).ending is ending


def head(*lines):
    return b"\r\n".join([b"HTTP/1.1 200 OK", b"Content-Length: 15", *lines]) + b"\r\n\r\n" + ANSWER


@pytest.mark.parametrize(
    "response",
    [
        b"BLARGH\r\n\r\n",
        ANSWER,
        head(b"Content-Length: 15"),
        head(b"Content-Length: 16"),
        head(b"Transfer-Encoding: chunked"),
        head(b"X-Big: " + b"a" * 8186),
        head(*(b"X-%d: a" % number for number in range(128))),
        head(b"X-A : b"),
        head(b"XABC"),
        head(b"X-A: b\0c"),
        b"HTTP/1.1 200 " + b"a" * 9000 + b"\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n",
        b"HTTP/1.1 101 Other\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        RESPONSE + b"JUNKJUNK\r\n\r\n",
        RESPONSE + RESPONSE,
        RESPONSE.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n") + RESPONSE,
        CHUNKED + b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_what_the_clients_parser_rejects_is_bad_http(response):
    assert only(("ask", REQUEST), ("answer", response), "fin").ending is Ending.BAD_HTTP


@pytest.mark.parametrize(
    "response",
    [
        head(b"X-Big: " + b"a" * 8185),
        head(*(b"X-%d: a" % number for number in range(127))),
        head(b"X-A: b\r\n  folded"),
        head(b"X-A: caf\xe9"),
        RESPONSE.replace(b"HTTP/1.1", b"HTTP/1.0"),
        RESPONSE.replace(b"200 OK", b"200"),
        RESPONSE.replace(b"\r\n", b"\n"),
    ],
)
def test_what_the_clients_parser_takes_is_complete(response):
    attempt = only(("ask", REQUEST), ("answer", response))

    assert (attempt.ending, attempt.response_sha256) == (Ending.COMPLETE, sha(ANSWER))


def test_a_second_status_line_inside_an_unfinished_body_is_bad_http():
    second = b"HTTP/1.1 502 Bad Gateway\r\n\r\n"
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + ANSWER

    assert only(("ask", REQUEST), ("answer", long + second), "fin").ending is Ending.BAD_HTTP
    assert (
        only(("ask", REQUEST), ("answer", long + second[:7]), ("answer", second[7:]), "fin").ending is Ending.BAD_HTTP
    )


def test_bytes_that_nobody_asked_for_are_one_more_attempt_of_the_last_call():
    first, second = follow(("ask", REQUEST), ("answer", RESPONSE), ("answer", RESPONSE), ("answer", RESPONSE), "fin")

    assert (first.ending, second.ending) == (Ending.COMPLETE, Ending.BAD_HTTP)
    assert (second.call, second.path, second.started) == ("r1.t0", "/v1/chat/completions", 2.0)


def test_interim_responses_are_not_the_answer():
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    attempt = only(("ask", REQUEST), ("answer", interim), ("answer", interim + RESPONSE))

    assert (attempt.ending, attempt.status, attempt.ended) == (Ending.COMPLETE, 200, 2.0)


def test_pipelined_requests_are_answered_in_order():
    other = REQUEST.replace(b"/v1/chat/completions", b"/tokenize")
    first, second = follow(("ask", REQUEST + other), ("answer", RESPONSE + RESPONSE))

    assert [(first.path, first.ending), (second.path, second.ending)] == [
        ("/v1/chat/completions", Ending.COMPLETE),
        ("/tokenize", Ending.COMPLETE),
    ]


def test_an_answer_before_the_upload_is_over_ends_the_exchange_without_a_request_hash():
    attempt = only(("ask", REQUEST[:-9]), ("answer", RESPONSE), ("ask", REQUEST[-9:]), "fin")

    assert (attempt.ending, attempt.request_sha256, attempt.response_sha256) == (Ending.COMPLETE, "", sha(ANSWER))


def test_a_request_after_the_routers_fin_has_no_answer():
    first, second = follow(("ask", REQUEST), ("answer", RESPONSE), "fin", ("ask", REQUEST))

    assert (first.ending, second.ending, second.call) == (Ending.COMPLETE, Ending.NO_ANSWER, "r1.t0")


def test_what_a_client_sends_in_place_of_http_is_an_exchange_too():
    attempt = only(("ask", b"\x16\x03\x01 hello\r\n\r\n"), ("answer", RESPONSE))

    assert attempt.ending is Ending.COMPLETE
    assert attempt.detail.startswith("request: ")


def test_what_the_router_sends_after_the_client_left_is_nobodys():
    assert len(follow(("ask", REQUEST), "left", ("answer", RESPONSE), "fin")) == 1


def test_the_newest_tag_of_a_request_names_the_call_even_across_pieces():
    body = f"{tag('r1.t0')} then {tag('r1.t1')} and so on".encode()
    wire = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    pieces = [("ask", wire[at : at + 1]) for at in range(len(wire))]

    assert only(*pieces, ("answer", RESPONSE)).call == "r1.t1"


@given(st.data())
def test_how_the_bytes_are_split_changes_nothing(data):
    stream = RESPONSE + CHUNKED + b"0\r\n\r\n" + CLOSING + ANSWER
    asked = REQUEST * 3
    cuts = st.lists(st.integers(0, max(len(stream), len(asked))), max_size=12).map(sorted)

    def pieces(kind, whole):
        edges = [0, *data.draw(cuts), len(whole)]
        return [(kind, whole[begin:end]) for begin, end in itertools.pairwise(edges)]

    def facts(steps):
        return [
            (attempt.ending, attempt.status, attempt.call, attempt.request_sha256, attempt.response_sha256)
            for attempt in follow(*steps, "fin")
        ]

    whole = facts([("ask", asked), ("answer", stream)])

    assert facts([*pieces("ask", asked), *pieces("answer", stream)]) == whole
