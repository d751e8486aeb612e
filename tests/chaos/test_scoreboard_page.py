"""The scoreboard and the page about one router, opened in a real browser: offline, on a phone, in the dark."""

import pytest

from gymproof.chaos.conform.findings import Word
from gymproof.chaos.conform.scoreboard import render_board, render_card

PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
DESKTOP = {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture
def board(cards, tmp_path):
    path = tmp_path / "board.html"
    path.write_text(render_board(cards, ".html", "### Against older figures"))
    return path


@pytest.fixture
def card(cards, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render_card(cards[-1]))
    return path


@pytest.mark.parametrize("settings", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_nothing_but_the_tables_scrolls_sideways(open_page, board, card, settings):
    width = settings["viewport"]["width"]

    assert open_page(board, **settings).evaluate("document.documentElement.scrollWidth") <= width
    assert open_page(card, **settings).evaluate("document.documentElement.scrollWidth") <= width


def test_the_name_of_a_check_stays_in_sight_when_the_table_is_moved(open_page, board):
    page = open_page(board, **PHONE)
    name = page.locator("tr", has_text="accept_close").first.locator("th")
    before = name.bounding_box()["x"]
    page.evaluate("for (const table of document.querySelectorAll('.wide')) table.scrollLeft = 400")

    assert page.evaluate("document.querySelectorAll('.wide')[1].scrollLeft") > 100
    assert name.bounding_box()["x"] == pytest.approx(before, abs=2)


@pytest.mark.parametrize("settings", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_a_word_unfolds_what_was_seen_and_a_click_beside_it_folds_it_again(open_page, board, cards, settings):
    finding = next(one for one in cards[-1].findings if one.word is Word.UNSAFE)
    page = open_page(board, **settings)
    page.locator("tr", has_text="accept_close").first.locator("summary .unsafe").last.click(timeout=5000)
    sheet = page.locator(".sheet:visible")

    assert finding.seen in sheet.inner_text()
    assert finding.right in sheet.inner_text()
    assert finding.evidence[0] in sheet.locator("pre").inner_text()
    box, size = sheet.bounding_box(), settings["viewport"]
    assert (box["x"], box["width"], box["y"] + box["height"]) == (0, size["width"], size["height"])
    page.mouse.click(20, 20)
    assert page.locator(".sheet:visible").count() == 0


def test_a_link_to_a_finding_unfolds_it(open_page, board, tmp_path):
    link = tmp_path / "link.html"
    link.write_text(f'<a href="{board.name}#litellm.one.accept_close">see</a>')
    page = open_page(link)
    page.get_by_text("see").click()

    assert "litellm, a fault on one shard: accept_close" in page.locator(".sheet:visible").inner_text()


def test_words_differ_by_shape_and_not_by_colour_alone(open_page, board):
    page = open_page(board)
    shape = "getComputedStyle(document.querySelector('td .{}'), '::before').content"
    shapes = {page.evaluate(shape.format(word)) for word in ("safe", "bounded", "unsafe", "not-applicable")}

    assert len(shapes) == 4


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_ink_and_paper_follow_the_readers_scheme(open_page, board, scheme, dark):
    page = open_page(board, color_scheme=scheme)
    paper, ink = (
        page.evaluate(f"getComputedStyle(document.body).{what}").strip("rgb()").split(", ")
        for what in ("backgroundColor", "color")
    )

    assert (sum(map(int, paper)) < sum(map(int, ink))) is dark


def test_the_page_about_one_router_unfolds_what_is_wrong_and_not_what_is_safe(open_page, card):
    page = open_page(card)
    page.locator("details.card[open] li summary").first.click()

    assert "503 after" in page.locator("li details[open] pre").inner_text()
    folded = page.locator("details.card:not([open]) > summary").all_inner_texts()
    assert folded
    assert all("safe" in one.split() for one in folded)
