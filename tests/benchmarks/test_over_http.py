"""Rollouts over HTTP: a real gym-router and simulated servers, for two seconds."""

import asyncio

from fleets.http_work import HttpWork
from fleets.over_http import compare

from gymproof.chaos.fleet import SimFleet

WORK = HttpWork(
    rollouts=4, group=2, turns=4, first_words=50, tool_words=20, answer_tokens=4, away_mean=0.05, warm_up=0.5, end=2.5
)


def test_a_policy_is_measured_by_its_clients_and_by_the_servers_counters(tmp_path):
    fleet = SimFleet(2, folder=tmp_path / "fleet", args=("--block-size", "16"))
    done = []
    [result] = asyncio.run(compare(fleet, ["session"], WORK, 1, tmp_path / "runs", lambda: done.append(1)))

    column = result.column
    assert (result.policy, result.failed, len(result.hit_rates), len(done)) == ("session", 0, 2, 1)
    assert column.requests_per_s > 0
    assert 0 < column.hit_rate < 1
    assert 0 < column.ttft_s < column.e2e_s
    assert column.tokens_per_s > column.requests_per_s * (50 + 4)
