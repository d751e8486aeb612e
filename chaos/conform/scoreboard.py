"""Scorecards for people: a page about one router, and `gym-chaos scoreboard`, which sets several side by side."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from markdown_it import MarkdownIt
from markupsafe import Markup

from ..commands import refused
from ..report.templates import environment
from .board import ASKED, WORDS, anchor, anchors, counts, excerpt, faults, folds, heading, judges, named, rows
from .findings import Scorecard, ScorecardError

FORMS: Mapping[str, str] = {".md": "board.md.j2", ".html": "board.html.j2"}
ROOMS = (4000, 2000, 1000, 500, 200, 0)  # characters of evidence for one finding
MOST_BYTES = {".md": 400_000, ".html": 1_900_000}  # GitHub shows no longer Markdown, a phone no longer page

_TEMPLATES = environment(Path(__file__).parent)
_TEMPLATES.globals |= {"anchor": anchor, "heading": heading, "counts": counts, "folds": folds}
_TEMPLATES.globals |= {"named": named, "words": WORDS, "asked": ASKED}
_TEMPLATES.filters |= {
    "excerpt": excerpt,
    "minute": lambda moment: time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment)),
}


def scoreboard(
    cards: Annotated[list[Path], typer.Argument(metavar="SCORECARD.json...", help="What `conform` has written.")],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help=f"Ends in {' or '.join(FORMS)} (prints Markdown)."),
    ] = None,
    notes: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="Put in as notes; its headings are ### or deeper.")
    ] = None,
) -> None:
    """Set the scorecards of several routers side by side, in the order in which they are given. Exit 2: bad input."""
    try:
        page = render_board(load(cards), ".md" if out is None else out.suffix, "" if notes is None else _read(notes))
        if out is None:
            typer.echo(page, nl=False)
        else:
            out.write_text(page, "utf-8")
    except (OSError, ValueError) as error:
        raise refused(error) from error


def load(paths: Sequence[Path]) -> list[Scorecard]:
    """Read cards of different routers. Raises ScorecardError."""
    found: dict[str, tuple[Path, Scorecard]] = {}
    for path in paths:
        card = Scorecard.read(path)
        if card.router in found:
            other, _ = found[card.router]
            raise ScorecardError(
                f"{other} and {path} are both of {card.router!r}: run one by its --router-cmd, with another --name"
            )
        found[card.router] = path, card
    return [card for _, card in found.values()]


def _read(notes: Path) -> str:
    try:
        return notes.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{notes}: not UTF-8: {error.reason} at byte {error.start}") from error


def render_board(cards: Sequence[Scorecard], form: str, notes: str = "") -> str:
    """All of them on one page of one of `FORMS`. Raises ValueError for another form."""
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r} of a scoreboard; known: {', '.join(FORMS)}")
    places = anchors(cards)
    in_html = form == ".html"
    values = {
        "cards": cards,
        "places": places,
        "table": rows(cards, lambda card, one: one.check if in_html else places[card.router, *one.key]),
        "judges": judges(cards),
        "faults": faults(cards),
        "notes": _html(notes) if in_html else notes,
    }
    return _fitting(form, lambda room: _TEMPLATES.get_template(FORMS[form]).render(values, room=room))


def render_card(card: Scorecard) -> str:
    """The page about one router, for those who want to mend it."""
    template = _TEMPLATES.get_template("card.html.j2")
    values = {"card": card, "judges": judges([card]), "faults": faults([card])}
    return _fitting(".html", lambda room: template.render(values, room=room))


def _fitting(form: str, draw: Callable[[int], str]) -> str:
    """The page with as much evidence as it can bear."""
    for room in ROOMS:
        page = draw(room)
        if len(page.encode()) <= MOST_BYTES[form]:
            break
    return page


def _html(notes: str) -> Markup:
    """Markdown as HTML; HTML in it stays text."""
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(notes))  # noqa: S704
