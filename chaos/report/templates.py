"""What every report is drawn with: the look of its page, and text that stays text in HTML and in Markdown."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from . import markdown


def environment(folder: Path) -> Environment:
    """The templates of `folder`; an HTML one extends `page.html.j2`, a Markdown one has the filters of `markdown`."""
    made = Environment(
        loader=FileSystemLoader([folder, Path(__file__).parent]),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"plain": markdown.plain, "text": markdown.text, "code": markdown.code, "fence": markdown.fence}
    return made
