"""Answers as they came over the wire."""

import gzip
import zlib

import pytest

from gymproof.validators import load_contract
from gymproof.validators.raw_answer import NotHttpError, RawAnswer, error_shape, irregularity, parse_head

JSON = b'{"a": 1}'
TYPED = ("Content-Type", "application/json")


def answer(body: bytes = JSON, *headers: tuple[str, str], status: int = 200, **fields) -> RawAnswer:
    return RawAnswer(status, "OK", headers, body, **fields)


def test_a_head_is_read_line_by_line():
    head = parse_head(b"HTTP/1.1 409 No Shard\r\nX-A:  b \r\nX-A: c")

    assert (head.status, head.reason) == (409, "No Shard")
    assert head.all("x-a") == ["b", "c"]
    assert head.header("missing") == ""


@pytest.mark.parametrize("line", [b"SSH-2.0-OpenSSH", b"", b"HTTP/1.1 OK", b'{"a": 1}'])
def test_what_is_no_status_line_is_refused(line):
    with pytest.raises(NotHttpError):
        parse_head(line)


IRREGULAR = [
    ("content_length_twice", answer(JSON, ("Content-Length", "8"), ("content-length", "8"))),
    ("content_length_twice_differing", answer(JSON, ("Content-Length", "8"), ("Content-Length", "9"))),
    ("content_length_and_chunked", answer(JSON, ("Content-Length", "8"), ("Transfer-Encoding", "chunked"))),
    ("header_line_9000", answer(JSON, ("X-Big", "a" * 8190))),
    ("header_lines_130", answer(JSON, *[("X", "v")] * 129)),
    ("reason_phrase_9000", RawAnswer(200, "a" * 9000, (), JSON)),
    ("fin_in_body_200", answer(cut=True)),
    ("br_lie_200", answer(JSON, ("Content-Encoding", "br"))),
    ("zstd_lie_200", answer(JSON, ("Content-Encoding", "zstd"))),
    ("gzip_lie_200", answer(JSON, ("Content-Encoding", "gzip"))),
    ("gzip_lie_200", answer(gzip.compress(JSON)[:-4], ("Content-Encoding", "gzip"))),
    ("gzip_lie_200", answer(JSON, ("Content-Encoding", "deflate"))),
    ("body_not_utf8_500", answer(b"\xff", status=500)),
    ("body_not_utf8_200", answer(b"\xff")),
    ("body_empty", answer(b"")),
    ("body_not_json", answer(b"{not json")),
    ("body_not_json", answer(b'{"a": NaN}')),
    ("body_not_json", answer(b"\xef\xbb\xbf{}")),
]


@pytest.mark.parametrize(("fault", "raw"), IRREGULAR)
def test_an_irregularity_has_the_contracts_name(fault, raw):
    assert irregularity(raw) == fault
    assert fault in load_contract().faults


@pytest.mark.parametrize(
    "raw",
    [
        answer(),
        answer(b"plain words", status=500),
        answer(b"", status=409),
        answer(gzip.compress(JSON), ("Content-Encoding", "gzip")),
        answer(zlib.compress(JSON), ("Content-Encoding", "deflate")),
        answer(JSON, ("Content-Encoding", "identity")),
        answer(JSON, *[("X", "v")] * 128),
    ],
)
def test_a_regular_answer_has_none(raw):
    assert irregularity(raw) is None


GOOD = b'{"error": {"message": "m", "type": "t", "code": "c", "param": null}}'


def test_an_error_of_the_usual_shape_has_nothing_to_be_told():
    assert error_shape(answer(GOOD, TYPED, status=409)) is None


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (answer(GOOD, ("Content-Type", "text/plain")), "text/plain, not application/json"),
        (answer(GOOD), "missing, not application/json"),
        (answer(b"404: Not Found", TYPED), "no JSON object"),
        (answer(b'{"detail": "Not Found"}', TYPED), "no JSON object under `error`"),
        (answer(b'{"error": {"message": "m"}}', TYPED), "no type, code, param"),
        (answer(b'{"error": null}', TYPED), "no JSON object"),
        (answer(b"\xff", TYPED), "no JSON object"),
    ],
)
def test_another_shape_is_told(raw, words):
    assert words in error_shape(raw)
