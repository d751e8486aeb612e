"""What another repository gets from the plugin."""

import os
import sys
from pathlib import Path

import pytest

CONFIG = "[pytest]\naddopts = --strict-markers -p no:cacheprovider\n"
SCENARIO = 'title = "A shard is killed"\nwhy = "w"\nscopes = ["one"]\n[load]\nrollouts = 4\n[[fault]]\nkind = "kill"\n'


# `pytester` moves HOME, and with it the cache that Toxiproxy was built into.
CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("XDG_CACHE_HOME", CACHE)
    pytester.makeini(CONFIG)
    return pytester


def scenario(project: pytest.Pytester, text: str) -> None:
    (project.path / "outage.chaos.toml").write_text(text)


def test_a_scenario_file_is_a_test_with_the_chaos_marker(project: pytest.Pytester):
    scenario(project, SCENARIO.replace('["one"]', '["one", "all"]'))

    result = project.runpytest_subprocess("--collect-only", "-q", "-m", "chaos")

    result.stdout.fnmatch_lines(["outage.chaos.toml::outage-one", "outage.chaos.toml::outage-all"])


def test_a_mistake_in_a_scenario_is_a_collection_error_that_names_it(project: pytest.Pytester):
    scenario(project, SCENARIO.replace('"kill"', '"kil"'))

    result = project.runpytest_subprocess()

    result.stdout.fnmatch_lines(["*outage.chaos.toml: fault.0: unknown fault kind 'kil'; known: *"])
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_a_scenario_passes_against_the_shipped_router(project: pytest.Pytester):
    scenario(project, SCENARIO)

    result = project.runpytest_subprocess("--chaos-client", "gym-like")

    result.stdout.fnmatch_lines(["gymproof: client gym-like*, fleet sim"])
    result.assert_outcomes(passed=1)


def test_a_scenario_whose_router_cannot_start_fails_with_its_command(project: pytest.Pytester):
    scenario(project, SCENARIO)

    result = project.runpytest_subprocess(
        "--chaos-client", "gym-like", "--router-cmd", f"{sys.executable} -c 1/0 {{port}}"
    )

    result.stdout.fnmatch_lines(["A shard is killed", "setup: unknown: RouterError: *ended with 1*", "*ZeroDivision*"])
    result.assert_outcomes(failed=1)


@pytest.mark.toxiproxy
def test_the_fixtures_are_a_fleet_a_router_and_a_client(project: pytest.Pytester):
    project.makepyfile("""
        import signal

        def test_a_dead_shard_costs_no_answer(fleet, router, gym_client):
            fleet.shards[1].signal("group", signal.SIGKILL)
            for _ in range(6):
                answer = gym_client.chat(model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=4)
                assert answer["choices"][0]["message"]["role"] == "assistant"
            assert "tokens" in gym_client.tokenize(model="tiny", messages=[{"role": "user", "content": "hi"}])

        def test_the_next_test_finds_every_shard_serving(fleet):
            assert all(shard.alive() for shard in fleet.shards)

        def test_toxiproxy_is_the_real_one(toxiproxy):
            assert toxiproxy.version().startswith("2.")
    """)

    project.runpytest_subprocess("--chaos-client", "gym-like").assert_outcomes(passed=3)


def test_unknown_choices_are_usage_errors_that_name_the_known(project: pytest.Pytester):
    scenario(project, SCENARIO)

    result = project.runpytest_subprocess("--fleet", "moon")

    result.stderr.fnmatch_lines(["ERROR: unknown fleet 'moon'; known: sim*"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_prefill_servers_are_skipped_for_a_router_that_is_not_told_of_them_and_it_says_so(project: pytest.Pytester):
    scenario(project, "fleet = { prefill = 1 }\n" + SCENARIO)

    result = project.runpytest_subprocess("--router-cmd", f"{sys.executable} {{port}}", "-rs")

    result.stdout.fnmatch_lines(["SKIPPED*the router command has no {prefill}*"])
