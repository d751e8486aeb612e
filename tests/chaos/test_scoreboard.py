"""The scoreboard as Markdown, the pages about one router, and what is refused."""

import re
from pathlib import Path

import pytest
import typer
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from gymproof.chaos.conform.board import anchor, counts, excerpt, folds, rows
from gymproof.chaos.conform.findings import Finding, Group, Scorecard, ScorecardError, Word
from gymproof.chaos.conform.scoreboard import FORMS, load, render_board, render_card, scoreboard
from gymproof.chaos.report.markdown import code, fence, plain, text

HOSTILE = "<script>alert(1)</script> | `tick` ```` [a](b) *b* _c_ $x$ &lt; \x1b[31m\u202e\r\nnext </pre></details>"


def github(page):
    """The page as HTML, near to what GitHub makes of it: tables, and HTML as it is."""
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(page)


def with_finding(card, **fields):
    finding = card.findings[0].model_copy(update=fields)
    return card.model_copy(update={"findings": (finding, *card.findings[1:])})


def written(cards, folder):
    paths = [folder / f"{number}.json" for number, _ in enumerate(cards)]
    for path, card in zip(paths, cards, strict=True):
        card.write(path)
    return paths


def run(*arguments):
    app = typer.Typer()
    app.command()(scoreboard)
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_every_link_on_the_page_leads_to_a_place_on_it(cards):
    html = github(render_board(cards, ".md"))
    headings = re.findall(r"<h[1-6]>([^<]+)</h", html)
    places = {*re.findall(r'<a id="([^"]+)"', html), *(name.lower().replace(" ", "-") for name in headings)}
    links = re.findall(r'href="#([^"]+)"', html)

    assert len(links) > 500
    assert set(links) <= places
    assert len(re.findall(r'<a id="([^"]+)"', html)) == len(set(re.findall(r'<a id="([^"]+)"', html)))


def test_every_check_of_every_router_is_a_word_that_links_to_what_was_seen(cards):
    html = github(render_board(cards, ".md"))

    for card in cards:
        places = {
            finding.key: fold.first for group in folds(card).values() for fold in group for finding in fold.findings
        }
        for finding in card.findings:
            told = html.partition(f'<a id="{anchor(card.router, places[finding.key])}">')[2].partition("<a id=")[0]
            assert f"<strong>{finding.word}</strong>" in told
            assert f"<code>{finding.check}</code>" in told
            assert finding.right in told.replace("&amp;", "&")


def test_the_words_are_counted_in_all_and_for_each_group(cards):
    page = render_board(cards, ".md")
    words = counts(cards[-1].findings)

    assert f"| [litellm](#litellm) | 1.22.1 | {words[Word.SAFE]} | 0 | {words[Word.UNSAFE]} |" in page
    assert sum(words.values()) == len(cards[-1].findings)
    assert "| [cancellation](#group.cancellation) | 2 safe |" in page


def test_checks_that_went_the_same_way_everywhere_share_a_row(cards):
    alone = rows(cards, lambda _, finding: finding.check)
    together = rows(cards, lambda _, finding: finding.word)

    assert len(alone[Group.ONE]) == len({finding.check for finding in cards[0].findings if finding.group is Group.ONE})
    assert len(together[Group.ONE]) < len(alone[Group.ONE])
    assert {check for row in together[Group.ONE] for check in row.checks} == {
        check for row in alone[Group.ONE] for check in row.checks
    }


def test_a_check_that_a_router_was_not_asked_has_no_word(cards):
    one = cards[1].model_copy(update={"findings": cards[1].findings[:1]})
    table = rows([cards[0], one], lambda _, finding: finding.check)

    assert [row.cells[1] for row in table[Group.PATHS]] == [None] * 4
    assert "not run" in render_board([cards[0], one], ".html")


def test_faults_are_in_the_order_of_their_names_whichever_was_tried_first(cards):
    other_way_round = [card.model_copy(update={"findings": card.findings[::-1]}) for card in cards]
    table = rows(other_way_round, lambda _, finding: finding.check)
    faults = [row.checks[0] for row in table[Group.ONE]]

    assert faults == sorted(faults)
    assert [row.checks[0] for row in table[Group.PATHS]] == ["responses", "completions", "models", "tokenize"]


def test_what_was_seen_is_told_once_for_those_that_differ_in_numbers_only():
    def finding(check, seen):
        return Finding(group=Group.ONE, check=check, word=Word.UNSAFE, seen=seen, right="answer 409")

    seen = {"a": "503 in 3.5 s, 14 of 16", "b": "none", "c": "503 in 12 s, 7 of 16", "d": "502 in 3.5 s, 14 of 16"}
    card = Scorecard.model_construct(findings=tuple(finding(check, words) for check, words in seen.items()))
    (fold,) = folds(card)[Group.ONE]

    assert [[one.check for one in alike] for alike in fold.sightings()] == [["a", "c"], ["b"], ["d"]]


def test_the_worst_is_told_first(cards):
    for group in folds(cards[-1]).values():
        order = [fold.first.word for fold in group]
        assert order == sorted(order, key=["unsafe", "bounded", "unknown", "not applicable", "safe"].index)


@pytest.mark.parametrize("form", FORMS)
def test_what_a_router_said_is_text_and_no_markup(cards, form):
    fields = {"seen": HOSTILE, "right": HOSTILE, "evidence": (HOSTILE,), "check": "<script> | `", "records": "<script>"}
    card = with_finding(cards[0], word=Word.UNSAFE, **fields)
    about = dict.fromkeys(("title", "version", "settings", "notes", "command"), "<script> | `")
    card = card.model_copy(update=about)
    page = render_board([card, *cards[1:]], form)
    html = page if form == ".html" else github(page)

    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; | `tick` ```` [a](b) *b* _c_ $x$ &amp;lt; " in html
    assert html.count("<table>") == html.count("</table>")
    assert {len(re.findall("<t[dh]", row)) for row in re.findall(r"<tr>.*?</tr>", html, re.DOTALL)} <= {7, 8}
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_a_page_about_one_router_says_what_is_right_and_shows_the_evidence(cards):
    page = render_card(with_finding(cards[-1], word=Word.UNSAFE, right="wait & see", evidence=(HOSTILE,)))

    assert "<strong>Right:</strong> wait &amp; see" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert 'href="accept_close-one/"' in page
    assert "Incomplete" not in page
    assert "Incomplete" in render_card(cards[-1].model_copy(update={"complete": False}))


@pytest.mark.parametrize("form", FORMS)
def test_the_same_cards_give_the_same_bytes(cards, tmp_path, form):
    again = load(written(cards, tmp_path))

    assert render_board(cards, form, "a note") == render_board(again, form, "a note")
    assert [render_card(card) for card in cards] == [render_card(card) for card in again]


@pytest.mark.parametrize(("form", "most"), [(".md", 400_000), (".html", 2_000_000)])
def test_a_page_stays_small_however_much_evidence_there_is(cards, form, most):
    wordy = tuple('{"content": "<&>"}' * 20 for _ in range(200))
    many = [
        card.model_copy(update={"findings": tuple(one.model_copy(update={"evidence": wordy}) for one in card.findings)})
        for card in cards
    ]
    page = render_board(many, form)

    assert len(page.encode()) < most
    assert "more lines in scorecard.json" in page


def test_notes_are_put_in_and_their_html_is_text_on_the_html_page(cards, tmp_path):
    notes = tmp_path / "notes.md"
    notes.write_text("### Against older figures\n\n`smg` said <b>429</b>.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    paths = written(cards[:2], tmp_path)

    assert run(*paths, "--notes", notes, "-o", tmp_path / "board.md").exit_code == 0
    assert run(*paths, "--notes", notes, "-o", tmp_path / "board.html").exit_code == 0
    assert notes.read_text().strip() in (tmp_path / "board.md").read_text()
    page = (tmp_path / "board.html").read_text()
    assert "<h3>Against older figures</h3>" in page
    assert "&lt;b&gt;429&lt;/b&gt;" in page
    assert "<td>2</td>" in page


def test_without_a_file_the_markdown_is_printed(cards, tmp_path):
    ran = run(*written(cards, tmp_path))

    assert ran.exit_code == 0
    assert ran.stdout == render_board(cards, ".md")


def test_routers_are_in_the_order_in_which_they_are_given(cards, tmp_path):
    ran = run(*reversed(written(cards[:2], tmp_path)))

    assert "| checks | [vllm-router](#vllm-router) | [gymproof](#gymproof) |" in ran.stdout


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: path.write_text("[]"), "no scorecard"),
        (lambda path: path.write_text("{"), "no scorecard"),
        (lambda path: path.unlink(), "cannot be read: No such file or directory"),
        (
            lambda path: path.write_text(path.read_text().replace('"format": 1', '"format": 2')),
            "it has format 2, and this gymproof reads 1",
        ),
        (
            lambda path: path.write_text(path.read_text().replace('"accept_close"', '"abort"')),
            "2 findings of a fault on one shard: abort",
        ),
    ],
    ids=["another JSON", "no JSON", "no file", "another format", "a check twice"],
)
def test_a_file_that_is_no_scorecard_is_refused(cards, tmp_path, damage, why):
    good, bad = written(cards[:2], tmp_path)
    damage(bad)
    ran = run(good, bad)

    assert ran.exit_code == 2
    assert str(bad) in ran.stderr
    assert why in ran.stderr


def test_two_cards_of_one_router_are_refused_by_name(cards, tmp_path):
    paths = written([cards[0], cards[0]], tmp_path)

    with pytest.raises(ScorecardError, match=re.escape(f"{paths[0]} and {paths[1]} are both of 'gymproof'")):
        load(paths)


@pytest.mark.parametrize("name", ["board.pdf", "board"])
def test_a_form_that_is_not_known_is_refused_with_those_that_are(cards, tmp_path, name):
    ran = run(*written(cards[:1], tmp_path), "-o", tmp_path / name)

    assert ran.exit_code == 2
    assert "known: .md, .html" in ran.stderr


@pytest.mark.parametrize("notes", [Path("missing.md"), None])
def test_notes_that_cannot_be_read_are_refused(cards, tmp_path, notes):
    latin = tmp_path / "latin.md"
    latin.write_bytes(b"caf\xe9")
    ran = run(*written(cards[:1], tmp_path), "--notes", notes or latin)

    assert ran.exit_code == 2
    assert str(notes or latin) in ran.stderr


def test_names_for_links_are_of_one_finding_each():
    finding = Finding(group=Group.ONE, check="a.b", word=Word.SAFE, seen="")
    other = finding.model_copy(update={"check": "a b"})

    assert len({anchor("x"), anchor("x", finding), anchor("x", other), anchor("x.one.a"), anchor("X")}) == 5
    assert re.fullmatch(r"[\w.~-]+", anchor('<a "b">', finding))


def test_an_excerpt_has_the_first_lines_and_counts_the_rest():
    assert excerpt(["abc", "defg"], 7) == (["abc", "defg"], 0)
    assert excerpt(["abc", "defg", "h"], 5) == (["abc", "de..."], 2)
    assert excerpt(["abc"], 0) == ([], 1)


def test_text_code_and_lines_stay_what_they_are_in_markdown():
    for words in ("a|b", "`", "``x`", "$x$ <b> &amp; \\", "*a* _b_ ~c~ [d](e)"):
        cell = (
            MarkdownIt("commonmark")
            .enable(["table", "strikethrough"])
            .render(f"|h|\n|-|\n|{text(words)} {code(words)}|\n")
        )
        shown = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        assert f"<td>{shown} <code>{shown}</code></td>" in cell
        assert f">{shown}\n</code></pre>" in github(fence(words))
    assert plain("a\tb\x00é") == "a\\tb\\x00é"
