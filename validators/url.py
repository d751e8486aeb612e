"""Asks a running router the QUESTIONS, all at once, each on a connection of its own."""

import asyncio

from .contract import Contract, load_contract
from .findings import Finding, cannot_tell
from .questions import KEPT_ALIVE, QUESTIONS, Broken, Outcome, Question, judge_answer, judge_keep_alive
from .raw_answer import NotHttpError
from .raw_http import BrokenAnswerError, Target, connect, parse_target


async def judge_url(
    url: str, *, timeout_s: float = 10.0, hold_s: float = 2.0, contract: Contract | None = None
) -> list[Finding]:
    """Findings on the router at `url` (with or without `/v1`), in the order of the questions.

    Each question has `timeout_s` seconds; one connection is left idle for `hold_s` seconds.
    Raises CannotTellError for a URL that cannot be asked, or where nobody listens.
    """
    contract = contract or load_contract()
    try:
        target = parse_target(url)
    except ValueError as error:
        raise cannot_tell(url, "url", url, str(error), "http://HOST:PORT/v1.") from error
    await _reach(url, target, timeout_s)
    asked = [ask(target, question, timeout_s) for question in QUESTIONS.values()]
    *outcomes, kept = await asyncio.gather(*asked, _ask_twice(target, hold_s, timeout_s))
    pairs = zip(QUESTIONS.items(), outcomes, strict=True)
    findings = [f for (name, q), outcome in pairs for f in judge_answer(url, name, q, outcome, contract)]
    return [*findings, judge_keep_alive(url, kept, contract)]


async def _reach(url: str, target: Target, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s), connect(target):
            return
    except TimeoutError:
        problem = f"no connection within {timeout_s:g} s"
    except OSError as error:
        problem = f"no connection: {error.strerror or error}"
    raise cannot_tell(url, "url", url, problem, "the URL of a router that is running.")


async def ask(target: Target, question: Question, timeout_s: float) -> Outcome:
    """One question on a connection of its own, and whatever came of it; it never raises for the server's doing."""
    request = target.request(question.method, question.path, question.headers, question.body)
    try:
        async with asyncio.timeout(timeout_s), connect(target) as connection:
            return await connection.ask(request)
    except TimeoutError:
        return Broken(None, f"no whole answer within {timeout_s:g} s")
    except BrokenAnswerError as error:
        return Broken(error.fault, str(error))
    except NotHttpError as error:
        return Broken("garbage_then_fin", str(error))
    except OSError as error:
        return Broken("connection_refused", f"no connection: {error.strerror or error}")


async def _ask_twice(target: Target, hold_s: float, timeout_s: float) -> Outcome:
    """The answer after `hold_s` idle seconds on one connection, or the first one if it said `close`."""
    request = target.request(KEPT_ALIVE.method, KEPT_ALIVE.path)
    try:
        async with asyncio.timeout(2 * timeout_s + hold_s), connect(target) as connection:
            first = await connection.ask(request)
            if first.header("connection").lower() == "close":
                return first
            await asyncio.sleep(hold_s)
            try:
                return await connection.ask(request)
            except BrokenAnswerError as error:
                return Broken("reused_then_fin", f"an idle connection did not last {hold_s:g} s: {error}")
    except (TimeoutError, OSError, BrokenAnswerError, NotHttpError) as error:
        return Broken(None, f"could not be watched: {error!r}")
