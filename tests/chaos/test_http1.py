"""HTTP/1.1 messages as values, and back."""

import pytest

from gymproof.chaos.http1 import Bad, Framing, RequestReader, Response, ResponseReader

BODY = b'{"answer": 42}'
RESPONSE = Response(200, ((b"Content-Type", b"application/json"), (b"Content-Length", b"14")), BODY)


@pytest.mark.parametrize("framing", list(Framing))
@pytest.mark.parametrize("body", [BODY, b"", b"x"])
def test_a_response_survives_any_framing(framing, body):
    response = Response(200, RESPONSE.headers, body)
    reader = ResponseReader()
    reader.feed(response.head(framing) + b"".join(response.halves(framing)))
    if framing is Framing.CLOSE:
        assert not reader.whole
        reader.end()

    assert (reader.response().status, reader.response().body) == (200, body)


def test_the_length_is_that_of_the_body_and_stands_once():
    head = Response(200, RESPONSE.headers, b"longer than before").head()

    assert head.lower().count(b"content-length") == 1
    assert b"content-length: 18\r\n" in head


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_a_body_has_no_length(status):
    assert b"content-length" not in Response(status, (), b"").wire().lower()


def test_a_response_that_is_not_whole_is_none():
    reader = ResponseReader()
    reader.feed(RESPONSE.wire()[:-1])
    reader.end()

    with pytest.raises(ValueError, match="not whole"):
        reader.response()


def test_a_chunked_request_is_collected_and_kept_as_it_came():
    wire = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    reader = RequestReader()
    results = [reader.feed(wire[at : at + 1]) for at in range(len(wire))]

    assert results[:-1] == [None] * (len(wire) - 1)
    assert (results[-1].head.path, results[-1].body, results[-1].wire) == ("/x", b"abcde", wire)


def test_what_is_no_request_is_bad():
    assert isinstance(RequestReader().feed(b"BLARGH\r\n\r\n"), Bad)
