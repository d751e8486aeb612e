"""The report of a real run, opened in a real browser: offline, on a phone, in the dark."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gymproof.chaos.recording import load_run
from gymproof.chaos.report import FORMATS, render, write

ROUTER = Path(__file__).parent / "bad_routers" / "truncates.py"
SCENARIO = """
title = "Answers are cut <in the middle> & passed on"
why = "To have a report with something in it."
scopes = ["one"]
[load]
rollouts = 4
[[fault]]
kind = "cut_body"
"""
MOST_BYTES = 2_000_000


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run in which a bad router passed cut answers on."""
    folder = tmp_path_factory.mktemp("report")
    scenario = folder / "cut.chaos.toml"
    scenario.write_text(SCENARIO)
    router = f"{shlex.quote(sys.executable)} {shlex.quote(str(ROUTER))} --port {{port}}"
    router += " --backends-file {backends_file} --deadline-s {deadline_s}"
    gym_chaos = [Path(sys.executable).with_name("gym-chaos"), "run", scenario, "--out", folder / "out"]
    ran = subprocess.run([*gym_chaos, "--router-cmd", router], capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return load_run(folder / "out" / "cut-one")


@pytest.fixture
def opened(run, open_page):
    """Open the report with the given settings."""
    return lambda **settings: open_page(run.path / "report.html", **settings)


def test_the_run_itself_has_written_a_report_that_stands_alone(run):
    page = run.path / "report.html"

    assert page.stat().st_size < MOST_BYTES
    assert "src=" not in page.read_text()
    assert 'href="http' not in page.read_text()


def test_the_page_shows_the_story_the_lanes_and_each_failed_check(opened):
    page = opened()

    assert page.locator("h1").inner_text().split() == ["cut-one", "failed"]
    assert page.locator("li.cause").inner_text().startswith("First cause: at ")
    lanes = page.locator("svg").first.locator("g > text:first-of-type").all_text_contents()
    assert lanes[:4] == ["clients", "shard 0", "shard 1", "shard 2"]
    assert page.locator("svg").first.locator("use.cross").count() > 0
    assert page.locator("section.card h2").first.inner_text().split() == ["answered_exactly_once", "fail"]
    assert "shard 1: answered 200" in page.locator("section.card td").last.inner_text()


def test_on_a_phone_nothing_but_the_wide_pictures_scrolls_sideways(opened):
    page = opened(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)

    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator("svg").first.bounding_box()["width"] >= 600


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_ink_and_paper_follow_the_readers_scheme(opened, scheme, dark):
    page = opened(color_scheme=scheme)
    paper, ink = (
        page.evaluate(f"getComputedStyle(document.body).{what}").strip("rgb()").split(", ")
        for what in ("backgroundColor", "color")
    )

    assert (sum(map(int, paper)) < sum(map(int, ink))) is dark


def test_what_a_scenario_says_is_text_and_no_markup(run):
    assert "&lt;in the middle&gt; &amp; passed on" in render(run, "html")
    assert "<in the middle> & passed on" not in render(run, "html")


def test_a_run_that_was_cut_off_has_a_report_that_says_so(run, tmp_path):
    folder = tmp_path / "cut-off"
    shutil.copytree(run.path, folder)
    (folder / "verdicts.json").unlink()
    about = (folder / "run.json").read_text()
    (folder / "run.json").write_text(about.replace('"complete": true', '"complete": false'))
    history = (folder / "history.jsonl").read_bytes()
    (folder / "history.jsonl").write_bytes(history[: len(history) // 2])

    for form in FORMATS:
        text = write(load_run(folder), form).read_text()
        assert "was cut off" in text
        assert "rollouts" in text


def test_markdown_has_the_story_the_checks_and_the_attempts(run):
    text = render(run, "md")

    assert text.startswith("# cut-one: failed\n")
    assert "- First cause: at " in text
    assert "| `answered_exactly_once` | fail |" in text
    assert "truncated 200" in text
