"""What answers to harmless questions are worth."""

import orjson
import pytest

from gymproof.validators import Verdict, load_contract
from gymproof.validators.questions import NOT_JSON, QUESTIONS, Broken, judge_answer, judge_keep_alive
from gymproof.validators.raw_answer import RawAnswer

URL = "http://router/v1"
ERROR = b'{"error": {"message": "m", "type": "t", "code": "c", "param": null}}'
TYPED = (("Content-Type", "application/json"),)


def judged(name: str, outcome):
    return list(judge_answer(URL, name, QUESTIONS[name], outcome, load_contract()))


def error(status: int, body: bytes = ERROR, headers=TYPED) -> RawAnswer:
    return RawAnswer(status, "", headers, body)


def test_no_question_can_make_a_server_generate():
    for question in QUESTIONS.values():
        assert question.method != "POST" or question.body == NOT_JSON
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(NOT_JSON)


@pytest.mark.parametrize(
    ("name", "outcome", "verdict", "words"),
    [
        ("models", RawAnswer(200, "", TYPED, b'{"data": []}'), Verdict.SAFE, "a whole answer"),
        ("models", error(409), Verdict.SAFE, "bounded"),
        ("models", error(503), Verdict.UNSAFE, "without bound"),
        ("models", RawAnswer(307, "", (("Location", "/x"),), b"{}"), Verdict.UNSAFE, "past the router"),
        ("models", RawAnswer(200, "", TYPED, b""), Verdict.UNSAFE, "body empty"),
        ("models", RawAnswer(999, "", TYPED, b""), Verdict.UNSAFE, "not a status"),
        ("chat", error(400), Verdict.SAFE, "bounded"),
        ("chat", error(400, b'{"error": "max_tokens is missing"}'), Verdict.UNSAFE, "scored"),
        ("chat", error(404), Verdict.UNSAFE, "on every turn"),
        ("chat", error(501), Verdict.UNSAFE, "serves no /v1/chat/completions"),
        ("models", error(501), Verdict.CAUTION, "serves no /v1/models"),
        ("tokenize", error(405), Verdict.UNSAFE, "on every turn"),
        ("responses", error(404), Verdict.CAUTION, "only where it is set up"),
        ("chat", RawAnswer(200, "", TYPED, b"{}"), Verdict.CAUTION, "makes no sense"),
        ("chat", Broken("fin_after_request", "closed"), Verdict.UNSAFE, "retried without bound"),
        ("header too long", Broken("rst_after_request", "reset"), Verdict.CAUTION, "nemo-gym's own requests"),
        ("chat", Broken(None, "no whole answer within 10 s"), Verdict.UNKNOWN, "no whole answer"),
        ("not HTTP", error(502), Verdict.UNSAFE, "without bound"),
    ],
)
def test_an_outcome_gets_its_verdict(name, outcome, verdict, words):
    first = judged(name, outcome)[0]

    assert (first.verdict, words in first.problem) == (verdict, True), first
    assert (first.source, first.key) == (URL, name)


def test_an_error_of_the_routers_own_should_have_the_usual_shape():
    assert len(judged("unknown path", error(404))) == 1
    status, shape = judged("unknown path", error(404, b"404: Not Found", (("Content-Type", "text/plain"),)))

    assert (status.verdict, shape.verdict) == (Verdict.SAFE, Verdict.CAUTION)
    assert shape.value == "404: Not Found"


def test_the_shape_of_a_backends_error_is_not_the_routers_business():
    assert len(judged("chat", error(400, b"bad", (("Content-Type", "text/plain"),)))) == 1


@pytest.mark.parametrize(
    ("outcome", "verdict", "words"),
    [
        (error(404), Verdict.SAFE, "still good"),
        (error(404, headers=(("Keep-Alive", "timeout=75, max=100"),)), Verdict.SAFE, "still good"),
        (error(404, headers=(("Keep-Alive", "timeout=5"),)), Verdict.CAUTION, "15 s"),
        (error(404, headers=(("Connection", "close"),)), Verdict.CAUTION, "new connection"),
        (Broken("reused_then_fin", "closed"), Verdict.CAUTION, "sends what was lost on it again"),
        (Broken(None, "could not be watched"), Verdict.UNKNOWN, "could not be watched"),
    ],
)
def test_keep_alive_gets_its_verdict(outcome, verdict, words):
    finding = judge_keep_alive(URL, outcome, load_contract())

    assert (finding.verdict, words in finding.problem) == (verdict, True), finding
