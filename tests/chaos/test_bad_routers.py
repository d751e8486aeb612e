"""The suite fails each deliberately broken router, by the checker that should, and passes a correct one."""

import dataclasses
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gymproof.chaos.checkers import CHECKERS
from gymproof.chaos.checkers.base import Status
from gymproof.chaos.choices import Setup
from gymproof.chaos.portal import Portal
from gymproof.chaos.runner import run_case
from gymproof.chaos.scenario import cases
from gymproof.chaos.stage import Session

pytestmark = pytest.mark.slow

ROUTERS = Path(__file__).parent / "bad_routers"
FAULTS = {
    "killed": 'kind = "kill"',
    "wedged": 'kind = "stop"\nprocess = "engine"\nheal_after_s = 2.0',
    "terminated": 'kind = "terminate"',
    "busy": 'kind = "status"\nstatus = 503',
    "redirecting": 'kind = "status"\nstatus = 307',
    "cut": 'kind = "cut_body"\nframing = "chunked"',
    "hung up on": 'kind = "hang_ups"',
    "asked nonsense": 'kind = "bad_requests"',
    "cut in the prefill leg": 'kind = "cut_body"\nshards = [0]',
    "aborting in the decode leg": 'kind = "abort"\nshards = [1]',
}
TWO_LEGS = "{ shards = 3, prefill = 1 }"
# Short limits: what is to be caught shows at once, and a router that never recovers need not be waited for.
SCENARIO = """
title = "A bad router meets a fleet that is {name}"
why = "A suite that passes it proves nothing."
scopes = ["{scope}"]
fleet = {fleet}
limits = {{ deadline_s = 1.0, grace_s = 0.5, cancel_within_s = 0.5, recover_within_s = 5.0 }}
[[fault]]
{fault}
"""


@dataclass(frozen=True)
class Exposed:
    """What a bad router does is seen on `one` or `all` shards under `fault`, by `checker`."""

    scope: str
    fault: str
    checker: str


BAD_ROUTERS = {
    "answers_400": Exposed("all", "killed", "gym_safe_statuses"),
    "answers_late": Exposed("all", "wedged", "within_deadline"),
    "answers_twice": Exposed("one", "cut", "answered_exactly_once"),
    "closes_unanswered": Exposed("one", "cut", "answered_exactly_once"),
    "drops_everyone": Exposed("one", "busy", "fleet_untouched"),
    "ejects_on_400s": Exposed("one", "asked nonsense", "no_rollout_lost"),
    "ejects_on_hang_ups": Exposed("one", "hung up on", "no_rollout_lost"),
    "forgets_to_cancel": Exposed("one", "hung up on", "upstream_cancelled"),
    "half_pairs": Exposed("one", "cut in the prefill leg", "pairs_whole"),
    "never_ejects": Exposed("one", "killed", "no_rollout_lost"),
    "never_readmits": Exposed("one", "killed", "recovers"),
    "no_deadline": Exposed("one", "wedged", "within_deadline"),
    "no_shard_503": Exposed("all", "killed", "no_unbounded_retry"),
    "relays_503": Exposed("one", "busy", "gym_safe_statuses"),
    "relays_aborts": Exposed("one", "terminated", "no_rollout_lost"),
    "relays_redirects": Exposed("one", "redirecting", "gym_safe_statuses"),
    "reuses_parameters": Exposed("one", "aborting in the decode leg", "pairs_whole"),
    "rewrites_answers": Exposed("one", "killed", "body_intact"),
    "rewrites_requests": Exposed("one", "killed", "body_intact"),
    "timeout_504": Exposed("all", "wedged", "gym_safe_statuses"),
    "tries_everyone": Exposed("all", "cut", "deliveries_bounded"),
    "truncates": Exposed("one", "cut", "answered_exactly_once"),
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """Run a router file under a fault: its verdicts. Cases with the same fleet share it."""
    setup = Setup(out=tmp_path_factory.mktemp("bad_routers"), client="gym-like")
    with Portal() as portal, portal.inside(Session(setup)) as session:

        def judge(router, fault, scope):
            command = f"{shlex.quote(sys.executable)} {shlex.quote(str(ROUTERS / router))}.py --port {{port}}"
            command += " --backends-file {backends_file} --deadline-s {deadline_s} --prefill={prefill}"
            session.setup = dataclasses.replace(setup, router_cmd=command, out=setup.out / router)
            session.setup.out.mkdir(exist_ok=True)
            file = session.setup.out / f"{fault.replace(' ', '_')}.chaos.toml"
            fleet = TWO_LEGS if "leg" in fault else "{}"
            file.write_text(SCENARIO.format(name=fault, scope=scope, fleet=fleet, fault=FAULTS[fault]))
            return portal.call(run_case(session, cases(file)[0])).verdicts

        yield judge


@pytest.mark.parametrize("router", BAD_ROUTERS)
def test_a_bad_router_is_caught_by_the_checker_that_should(router, suite):
    exposed = BAD_ROUTERS[router]
    verdicts = suite(router, exposed.fault, exposed.scope)

    assert {name: verdict.status for name, verdict in verdicts.items()}.get(exposed.checker) is Status.FAIL, verdicts


@pytest.mark.parametrize(
    ("fault", "scope"), sorted({(exposed.fault, exposed.scope) for exposed in BAD_ROUTERS.values()})
)
def test_a_correct_router_passes_where_the_bad_ones_fail(fault, scope, suite):
    verdicts = suite("base", fault, scope)

    assert {name: verdict.why for name, verdict in verdicts.items() if verdict.status is not Status.PASS} == {}


def test_every_bad_router_is_in_the_table():
    assert {file.stem for file in ROUTERS.glob("*.py")} - {"base"} == BAD_ROUTERS.keys()


def test_every_checker_catches_some_bad_router():
    assert {exposed.checker for exposed in BAD_ROUTERS.values()} == CHECKERS.keys()
