"""What is printed of finished runs: tables, targets, and what was written before."""

from dataclasses import replace
from io import StringIO

import orjson
from fleets.experiments import EXPERIMENTS, TABLE
from fleets.report import as_json, document_table, from_json, reading, target_table
from fleets.results import Column, Result
from fleets.targets import TARGETS, Runs, judge
from rich.console import Console

RUN = Result(
    experiment="spiral 0.84",
    policy="session",
    seed=1,
    column=Column(1300.0, 1.0, 0.9, 0.1, 0.01, 0.0, 1.0, 2.0),
    p99_e2e_s=10.0,
    ceiling=0.95,
    worst_hit_rate=0.4,
    moves=0.0,
    preemptions=0,
    repeats=0,
    throughput=[1300.0] * 75,
    hit_rates=[0.9] * 75,
)
HASHED = replace(RUN, policy="consistent_hash", column=replace(RUN.column, tokens_per_s=1000.0), p99_e2e_s=40.0)


def printed(table) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(table)
    return console.file.getvalue()


def test_a_target_is_judged_by_its_mean_and_shows_every_seed():
    other = replace(HASHED, seed=2, column=replace(RUN.column, tokens_per_s=2000.0))
    verdicts = judge(Runs([RUN, HASHED, replace(RUN, seed=2), other]), [1, 2])

    assert [(v.target.label, v.figures, v.met) for v in verdicts] == [
        ("tokens/s / consistent_hash", [1.3, 0.65], False),
        ("p99 end-to-end / consistent_hash", [0.25, 0.25], True),
        ("lowest hit rate of an engine over 100 s", [0.4, 0.4], False),
    ]
    assert "mean 0.975 | 1.300, 0.650 | NOT MET" in printed(target_table(verdicts))


def test_one_bad_seed_misses_the_lowest_hit_rate_however_good_the_others_are():
    seeds = [replace(RUN, seed=1, worst_hit_rate=0.95), replace(RUN, seed=2, worst_hit_rate=0.4)]
    (verdict,) = judge(Runs(seeds), [1, 2])

    assert (verdict.target.label, verdict.met) == ("lowest hit rate of an engine over 100 s", False)
    assert "worst 0.400 | 0.950, 0.400 | NOT MET" in printed(target_table([verdict]))


def test_every_target_and_every_line_of_the_table_is_about_an_experiment_that_exists():
    assert {target.experiment for target in TARGETS} | {entry.experiment for entry in TABLE} <= set(EXPERIMENTS)


def test_the_table_has_the_published_lines_and_those_that_were_run():
    lines = printed(document_table(Runs([replace(RUN, experiment="document")]))).splitlines()

    named = [line.split("|")[1].strip() for line in lines if line.startswith("|")][2:]
    assert named == ["baseline, published", "unified, published", "wide-EP, published", "session, simulated"]


def test_what_was_written_is_read_back():
    assert [from_json(one) for one in orjson.loads(orjson.dumps(as_json([RUN, HASHED])))] == [RUN, HASHED]


def test_the_reading_of_the_published_gain_is_computed_from_the_published_table():
    assert "baseline: R = 10.2 s, Z = 256 / 10.67 - R = 13.8 s" in reading()
    assert "unified: R = 10.9 s, Z = 256 / 12.44 - R = 9.7 s" in reading()
