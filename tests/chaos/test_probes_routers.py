"""The probes find nothing in a router that is right, and in each flawed one the flaw, by the check that should."""

import asyncio
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gymproof.chaos.choices import GYM_ROUTER
from gymproof.chaos.conform.findings import Finding, Group, Word
from gymproof.chaos.conform.probes import PROBES, Bench, probe
from gymproof.chaos.guard import Guard

pytestmark = pytest.mark.slow

ROUTERS = Path(__file__).parent / "probed_routers"
SESSION = "X-Session-ID"


def findings_of(command: str, folder: Path, *groups: Group, **settings) -> list[Finding]:
    """What the probes of some groups say of a router."""
    with Guard() as guard:
        return asyncio.run(probe(Bench(command, folder, guard, session_header=SESSION, **settings), groups))


def flawed(kind: str) -> str:
    python, script = shlex.quote(sys.executable), shlex.quote(str(ROUTERS / "flawed.py"))
    return f"{python} {script} {kind} --port {{port}} --backends-file {{backends_file}}"


def told(finding: Finding) -> str:
    """All that a router's author gets to read."""
    return "\n".join([f"{finding.check}: {finding.word}", finding.seen, finding.right, *finding.evidence])


@pytest.mark.parametrize("group", PROBES)
def test_nothing_is_wrong_with_gym_router(tmp_path: Path, group: Group):
    findings = findings_of(GYM_ROUTER, tmp_path, group)

    assert [told(finding) for finding in findings if finding.word is not Word.SAFE] == []
    assert tuple(finding.check for finding in findings) == tuple(PROBES[group].checks)


CALM = (Group.PAYLOAD, Group.HEADERS, Group.PATHS, Group.CANCELLATION)


@pytest.mark.parametrize("groups", [CALM, (Group.AFFINITY,), (Group.RESTART,)])
def test_nothing_is_wrong_with_a_faithful_router(tmp_path: Path, groups: tuple[Group, ...]):
    findings = findings_of(flawed("Faithful"), tmp_path, *groups)

    wrong = {finding.check: told(finding) for finding in findings if finding.word is not Word.SAFE}
    wrong.pop("conversation_sticks", None)  # it has no such thing
    assert wrong == {}


def test_a_router_that_takes_turns_knows_no_session(tmp_path: Path):
    findings = findings_of(f"{GYM_ROUTER} --policy round_robin", tmp_path, Group.AFFINITY)

    assert {finding.check: finding.word for finding in findings}["header_sticks"] is Word.BOUNDED


@dataclass(frozen=True)
class Flaw:
    """Which group shows it, by which checks with which words, and what a router's author reads there."""

    group: Group
    words: dict[str, Word]
    read: str


BOUNDED, UNSAFE = Word.BOUNDED, Word.UNSAFE
FLAWS = {
    "WritesAnew": Flaw(
        Group.PAYLOAD,
        dict.fromkeys(("token_ids_request", "reasoning_request", "completion_request", "responses_request"), BOUNDED),
        "written anew, with the same content",
    ),
    "DropsTokenIds": Flaw(
        Group.PAYLOAD, {"token_ids_request": UNSAFE}, "messages[4].prompt_token_ids dropped (was [1, 15043])"
    ),
    "RoundsLogprobs": Flaw(
        Group.PAYLOAD,
        dict.fromkeys(("chat_answer", "completion_answer"), UNSAFE),
        "choices[0].logprobs.content[0].logprob changed: -0.12345678901234568 became -0.12345679",
    ),
    "AsksAgain": Flaw(
        Group.PAYLOAD,
        {"refusal_400": UNSAFE, "refusal_404": BOUNDED, "refusal_422": BOUNDED},
        "2 deliveries, each answered 400",
    ),
    "DropsHeaders": Flaw(Group.HEADERS, {"request_headers": UNSAFE}, "lost or changed: Authorization, X-Session-ID"),
    "PassesHopByHop": Flaw(
        Group.HEADERS, {"request_hop_by_hop": BOUNDED}, "X-Gymproof-Hop, Keep-Alive, Proxy-Authorization, TE"
    ),
    "PassesAllPaths": Flaw(
        Group.PATHS,
        {"admin_paths": UNSAFE, "admin_paths_in_disguise": UNSAFE, "engine_metrics": BOUNDED},
        "reach a shard: /pause, /resume, /sleep",
    ),
    "HasNoTokenize": Flaw(Group.PATHS, {"tokenize": UNSAFE}, "POST /tokenize: 404, 0 deliveries"),
    "AsksOnce": Flaw(Group.PATHS, {"tokenize_elsewhere": UNSAFE}, "one shard of two answers 503, the client gets 503"),
    "AnswersPlain": Flaw(Group.PATHS, {"unknown_path": BOUNDED}, "404 no JSON (text/plain; charset=utf-8, 12 bytes)"),
    "ForgetsSessions": Flaw(
        Group.AFFINITY,
        dict.fromkeys(("header_sticks", "header_on_death", "header_on_return"), BOUNDED),
        "only the sessions of a shard that is gone move",
    ),
    "CountsShards": Flaw(
        Group.AFFINITY, {"header_on_death": BOUNDED, "header_on_return": BOUNDED}, "keys of the others moved"
    ),
    "UsesOneShard": Flaw(
        Group.AFFINITY, dict.fromkeys(("keyless_spread", "conversation_sticks"), BOUNDED), "A/B/C 48/0/0"
    ),
    "NeverCancels": Flaw(Group.CANCELLATION, {"whole_answers": UNSAFE}, "30 run on for over 6 s"),
    "LeavesAtOnce": Flaw(Group.RESTART, {"sigterm_drains": UNSAFE}, "no_answer x20, truncated x10"),
    "IsBusyAtFirst": Flaw(Group.RESTART, {"none_up_at_start": UNSAFE}, "503, which nemo-gym retries without bound"),
    "TakesSmallBodies": Flaw(Group.LOAD, {"requests_of_4_mib": BOUNDED}, "413 x20"),
}


@pytest.mark.parametrize("kind", FLAWS)
def test_a_flaw_is_found_by_the_check_that_should_and_by_no_other(tmp_path: Path, kind: str):
    flaw = FLAWS[kind]

    findings = findings_of(flawed(kind), tmp_path, flaw.group)

    wrong = {finding.check: finding for finding in findings if finding.word not in {Word.SAFE, Word.NOT_APPLICABLE}}
    assert {check: finding.word for check, finding in wrong.items()} == flaw.words, "\n".join(map(told, wrong.values()))
    assert all(finding.right[:1].isupper() for finding in wrong.values())
    assert flaw.read in "\n".join(map(told, wrong.values()))


@pytest.mark.parametrize("group", [Group.PAYLOAD, Group.HEADERS])
def test_a_router_that_hangs_is_unsafe_and_the_probe_comes_to_an_end(tmp_path: Path, group: Group):
    findings = findings_of(flawed("Hangs"), tmp_path, group, deadline_s=0.5, grace_s=0.5)

    assert {finding.word for finding in findings} == {Word.UNSAFE}
    assert [told(finding) for finding in findings if "pending after 1." not in told(finding)] == []


def test_a_router_that_does_not_start_is_unknown_with_the_reason(tmp_path: Path):
    findings = findings_of("sh -c 'echo no such option; exit 3' {port}", tmp_path, Group.PATHS, Group.LOAD)

    assert {finding.word for finding in findings} == {Word.UNKNOWN}
    assert all("ended with 3" in finding.seen and "no such option" in finding.seen for finding in findings)


def test_a_group_without_probes_is_named_with_those_that_have_some(tmp_path: Path):
    with pytest.raises(KeyError, match=r"no probes of .*recovery.*; known: payload fidelity"):
        findings_of("sh", tmp_path, Group.RECOVERY)
