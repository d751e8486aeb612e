"""Real routers, where their programs are there: what they are known for is found."""

import asyncio
from pathlib import Path

import pytest

from gymproof.chaos.conform.findings import Group, Word
from gymproof.chaos.conform.peers import find, missing
from gymproof.chaos.conform.run import Judgement, Subject, choose, judge_router

CHECKS = ("kill_group", "token_ids_request")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "no_shard_left", "request_body"),
    [
        pytest.param("nginx", Word.SAFE, Word.SAFE, id="nginx answers 409 when told to, and touches no body"),
        pytest.param("vllm-router", Word.UNSAFE, Word.UNSAFE, id="vllm-router answers 503, and drops token ids"),
    ],
)
def test_what_a_router_is_known_for_is_found(name: str, no_shard_left: Word, request_body: Word, tmp_path: Path):
    preset = find(name)
    if why := missing(preset):
        pytest.skip(why)

    subject = Subject(preset.name, preset.command)
    card = asyncio.run(judge_router(Judgement(subject, "nemo-gym", choose(CHECKS)), tmp_path))

    words = card.words()
    assert words[Group.ONE, "kill_group"] is Word.SAFE
    assert words[Group.ALL, "kill_group"] is no_shard_left
    assert words[Group.PAYLOAD, "token_ids_request"] is request_body
