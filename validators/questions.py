"""The questions that a router is asked, and what its answers are worth to a client.

Pure: one table of questions, and plain functions from an answer to findings. None of the
questions can make a server generate a token.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from .contract import CLIENT, STRICTEST, Contract, Handling
from .findings import Finding, Verdict
from .raw_answer import RawAnswer, error_shape, irregularity
from .status import judge_status

NOT_JSON = b"{"  # a body that nothing can be generated from
_BAD_REQUEST, _FIRST_ERROR = 400, 400
_NOT_SERVED = frozenset({404, 405, 501})
_SCORED_WORDS = (b"max_tokens", b"context length")
_SHAPE = '{"error": {"message", "type", "code", "param"}} as application/json.'


@dataclass(frozen=True, slots=True)
class Question:
    """One request and what it is for.

    `needed_by`: the clients that cannot do without this path. `router_made`: the request makes no sense,
    so the router has to find the answer itself. `asked_by_gym`: the client may send such a
    request, so that a connection which breaks over it is a real one.
    """

    method: str
    path: str
    headers: tuple[str, ...] = ()
    body: bytes = b""
    needed_by: frozenset[str] = frozenset()
    router_made: bool = False
    asked_by_gym: bool = True


QUESTIONS: dict[str, Question] = {
    "models": Question("GET", "/v1/models"),
    "chat": Question("POST", "/v1/chat/completions", body=NOT_JSON, needed_by=frozenset(STRICTEST)),
    "tokenize": Question("POST", "/tokenize", body=NOT_JSON, needed_by=frozenset({CLIENT})),
    "completions": Question("POST", "/v1/completions", body=NOT_JSON),
    "responses": Question("POST", "/v1/responses", body=NOT_JSON),
    "unknown path": Question("GET", "/v1/gymproof-asks-for-nothing", router_made=True),
    "wrong method": Question("DELETE", "/v1/chat/completions", router_made=True),
    "unknown Expect": Question(
        "POST", "/tokenize", ("Expect: gymproof",), NOT_JSON, router_made=True, asked_by_gym=False
    ),
    "header too long": Question(
        "GET", "/v1/models", ("X-Gymproof: " + "a" * 70_000,), router_made=True, asked_by_gym=False
    ),
    "not HTTP": Question("GYM PROOF", "/", router_made=True, asked_by_gym=False),
}
KEPT_ALIVE = QUESTIONS["unknown path"]  # asked twice on one connection


@dataclass(frozen=True, slots=True)
class Broken:
    """No usable answer: the contract's name for it (None for no answer in time) and the words."""

    fault: str | None
    problem: str


Outcome = RawAnswer | Broken
Opinion = tuple[Verdict, str, str]  # verdict, problem, what would be right


def judge_answer(url: str, name: str, question: Question, outcome: Outcome, contract: Contract) -> Iterator[Finding]:
    """What the client would do with the outcome of one question, and whether an error has the usual shape."""
    if isinstance(outcome, Broken):
        yield Finding(_of_broken(question, outcome), url, name, "", _words(outcome, contract))
        return
    verdict, problem, right = _of_answer(question, outcome, contract)
    yield Finding(verdict, url, name, outcome.status, problem, right)
    if question.router_made and outcome.status >= _FIRST_ERROR:
        shape = error_shape(outcome)
        if shape is not None:
            yield Finding(Verdict.CAUTION, url, f"{name}: error body", _excerpt(outcome), shape, _SHAPE)


def _of_broken(question: Question, broken: Broken) -> Verdict:
    if broken.fault is None:
        return Verdict.UNKNOWN
    return Verdict.UNSAFE if question.asked_by_gym else Verdict.CAUTION


def _words(broken: Broken, contract: Contract) -> str:
    if broken.fault is None:
        patience = contract.timing.silence_s
        return f"{broken.problem}; {contract.client} itself would wait " + (
            f"{patience:g} s" if patience else "for ever"
        )
    return f"{broken.problem}; to {contract.client}'s own requests that is: {contract.faults[broken.fault]}"


def _of_answer(question: Question, answer: RawAnswer, contract: Contract) -> Opinion:
    if answer.status not in contract.statuses:
        return Verdict.UNSAFE, "not a status in 200..599", ""
    fault = irregularity(answer)
    if fault is not None and contract.faults[fault].handling is not Handling.RETURNED:
        return Verdict.UNSAFE, f"{fault.replace('_', ' ')}: {contract.faults[fault]}", ""
    status = judge_status(answer.status, contract=contract)
    if status.verdict is Verdict.UNSAFE:
        return status.verdict, status.problem, status.right
    if answer.status < _FIRST_ERROR:
        return _of_success(question)
    return _of_error(question, answer, contract.client)


def _of_success(question: Question) -> Opinion:
    if question.router_made or question.body:
        return Verdict.CAUTION, "a request that makes no sense was answered as if it did", ""
    return Verdict.SAFE, "a whole answer", ""


def _of_error(question: Question, answer: RawAnswer, client: str) -> Opinion:
    if client == CLIENT and answer.status == _BAD_REQUEST and any(words in answer.body for words in _SCORED_WORDS):
        problem = "a 400 that says max_tokens or context length is scored as a finished, overlong rollout"
        return Verdict.UNSAFE, problem, "another 4xx, or other words."
    if question.router_made or answer.status not in _NOT_SERVED:
        return Verdict.SAFE, "an error that is tried a bounded number of times", ""
    if client in question.needed_by:
        right = f"the URL of a router, or of a server, for {client}."
        return Verdict.UNSAFE, f"serves no {question.path}, which {client} needs on every turn", right
    return Verdict.CAUTION, f"serves no {question.path}, which {client} needs only where it is set up to use it", ""


def judge_keep_alive(url: str, outcome: Outcome, contract: Contract) -> Finding:
    """Whether an idle connection outlives the client's interest in it."""
    verdict, problem, right = _of_keep_alive(outcome, contract.timing.idle_s)
    value = "" if isinstance(outcome, Broken) else outcome.header("keep-alive") or outcome.header("connection")
    return Finding(verdict, url, "keep-alive", value, problem, right)


def _of_keep_alive(outcome: Outcome, idle_s: float) -> Opinion:
    longer = f"keep idle connections for more than {idle_s:g} s."
    if isinstance(outcome, Broken):
        if outcome.fault is None:
            return Verdict.UNKNOWN, outcome.problem, ""
        return Verdict.CAUTION, f"{outcome.problem}; the client sends what was lost on it again", longer
    if outcome.header("connection").lower() == "close":
        return Verdict.CAUTION, "every request pays for a new connection", longer
    promised = outcome.header("keep-alive").lower().partition("timeout=")[2].partition(",")[0].strip()
    if promised.isdigit() and int(promised) <= idle_s:
        problem = f"the client holds on to an idle connection for {idle_s:g} s and may send into a closed one"
        return Verdict.CAUTION, problem, longer
    return Verdict.SAFE, "the connection was still good after idling", ""


def _excerpt(answer: RawAnswer) -> str:
    return answer.body[:80].decode("latin-1")
