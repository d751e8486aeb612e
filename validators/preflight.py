"""The short conformance set: a router command in front of two scripted backends, one chat call for each thing they do.

Some seconds for a training setup that wants to know before it starts. What a whole fleet can go through, with rollouts
and processes that die, is the chaos suite's business.
"""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from http import HTTPStatus

from .contract import Contract, Handling
from .findings import Finding, Verdict
from .questions import Broken, Outcome, Question
from .raw_answer import RawAnswer, irregularity
from .raw_http import parse_target
from .router_process import running
from .script import Case, End, always
from .scripted_server import Stage, play
from .status import judge_status
from .url import ask, judge_url
from .wire import COMPLETION, OK, answer, plain

DEADLINE_S = 2.0  # what the router is told
GRACE_S = 2.0  # over the deadline
START_WITHIN_S = 10.0
RECOVER_WITHIN_S = 4.0
SPREAD_WITHIN_S = 1.0  # a router that keeps equal calls together may never spread them

# What a backend does to a chat call, by the words of the report. Its GETs go on to be answered.
TROUBLES: Mapping[str, Case] = {
    "429": always(plain(429)),
    "503": always(plain(503)),
    "a redirect": always(answer(307, headers=["Location: /elsewhere"])),
    "a reset connection": always(End.RST),
    "a body that is cut": always(plain(200)[:-10], End.FIN),
    "no HTTP": always(b"BLARGH\r\n\r\n", End.FIN),
    "silence": always(End.STALL),
}


async def judge_command(command: str, contract: Contract) -> list[Finding]:
    """Findings on the router that `command` starts: with every backend well, then with one and with both in trouble.

    Every process is gone when this returns or raises. Raises CannotTellError for a command that starts no router.
    """
    healthy = replace(always(OK), spares_get=True)
    async with AsyncExitStack() as stack:
        stages = [await stack.enter_async_context(play(healthy)) for _ in range(2)]
        urls = [stage.base_url.removesuffix("/v1") for stage in stages]
        router = running(command, urls, deadline_s=DEADLINE_S, client=contract.client, start_within_s=START_WITHIN_S)
        url = await stack.enter_async_context(router)
        findings = [_judge(url, "healthy", await _chat(url), contract, served=True)]
        for trouble, case in TROUBLES.items():
            for scope, struck in (("one shard", stages[:1]), ("all shards", stages)):
                findings += await _strike(url, f"{trouble}, {scope}", struck, case, contract, stages)
        for stage in stages:
            stage.instead = replace(always(plain(422)), spares_get=True)  # what an engine makes of nonsense
        asked = await judge_url(url, timeout_s=DEADLINE_S + GRACE_S, hold_s=0.5, contract=contract)
        return [*findings, *asked]


async def _strike(
    url: str, name: str, struck: Sequence[Stage], case: Case, contract: Contract, stages: Sequence[Stage]
) -> list[Finding]:
    """Let `struck` misbehave for a call to each shard, and wait until the router has recovered."""
    alone = len(struck) < len(stages)
    for stage in struck:
        stage.instead = replace(case, spares_get=True)
    outcomes = [await _chat(url) for _ in (stages if alone else struck[:1])]
    for stage in struck:
        stage.instead = None
    found = [_judge(url, name, outcome, contract, served=alone) for outcome in outcomes]
    worst = max(found, key=lambda finding: _ORDER.index(finding.verdict))
    if await _recovers(url, stages):
        return [worst]
    problem = f"serves nothing {RECOVER_WITHIN_S:g} s after the shards were well again"
    return [worst, Finding(Verdict.CAUTION, url, f"after {name}", "", problem)]


async def _recovers(url: str, stages: Sequence[Stage]) -> bool:
    """Whether calls are answered again; the next trouble should meet a whole fleet."""
    clock = asyncio.get_running_loop().time
    started, before, served = clock(), [_calls(stage) for stage in stages], False
    while (passed := clock() - started) < RECOVER_WITHIN_S and not (served and passed > SPREAD_WITHIN_S):
        outcome = await _chat(url)
        served = isinstance(outcome, RawAnswer) and outcome.status == HTTPStatus.OK
        if served and all(_calls(stage) > calls for stage, calls in zip(stages, before, strict=True)):
            return True
        await asyncio.sleep(0.05)  # the interval of a bounded poll
    return served


def _calls(stage: Stage) -> int:
    return stage.requests - stage.spared


async def _chat(url: str) -> Outcome:
    text = next(_PROMPTS)
    body = b'{"model": "m", "messages": [{"role": "user", "content": "preflight %d"}]}' % text
    return await ask(parse_target(url), Question("POST", "/v1/chat/completions", body=body), DEADLINE_S + GRACE_S)


_PROMPTS = itertools.count()
_ORDER = (Verdict.SAFE, Verdict.CAUTION, Verdict.UNKNOWN, Verdict.UNSAFE)


def _judge(url: str, name: str, outcome: Outcome, contract: Contract, *, served: bool) -> Finding:
    """What the client would make of one answer; `served`: a shard was well, so there could have been a real one."""
    if isinstance(outcome, Broken):
        told = contract.faults[outcome.fault] if outcome.fault else f"{{deadline_s}} was {DEADLINE_S:g}"
        return Finding(Verdict.UNSAFE, url, name, "", f"{outcome.problem} ({told})", "one whole answer.")
    fault = irregularity(outcome)
    if fault is not None and contract.faults[fault].handling is not Handling.RETURNED:
        problem = f"{fault.replace('_', ' ')}: {contract.faults[fault]}"
        return Finding(Verdict.UNSAFE, url, name, outcome.status, problem, "one whole answer.")
    if outcome.status == HTTPStatus.OK:
        return _judge_success(url, name, outcome, served=served)
    finding = judge_status(outcome.status, contract=contract, source=url, key=name)
    if served and finding.verdict is Verdict.SAFE:
        return replace(finding, verdict=Verdict.CAUTION, problem=f"{finding.problem}; another shard could have served")
    return finding


def _judge_success(url: str, name: str, answer: RawAnswer, *, served: bool) -> Finding:
    if not served:
        return Finding(Verdict.UNSAFE, url, name, answer.status, "a success that no shard gave", "an error status.")
    if answer.body != COMPLETION:
        problem = "the shard's answer, but not byte for byte: fields that training needs may be lost"
        return Finding(Verdict.CAUTION, url, name, answer.status, problem, "the shard's bytes.")
    return Finding(Verdict.SAFE, url, name, answer.status, "the shard's answer, byte for byte")
