"""What a report consists of, and the templates that it is put into: HTML for looking at, Markdown for a ticket."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..checkers.base import Verdict
from ..history import History
from .drawing import LANE, LEFT, PLOT, SHAPES, WIDTH, bounds, draw
from .evidence import failures
from .story import story, title

_HERE = Path(__file__).parent
_TEMPLATES = Environment(
    loader=FileSystemLoader(_HERE),
    autoescape=lambda name: name is not None and name.startswith("report.html"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True, slots=True)
class Subject:
    """One case as a report needs it. `events` are the router's own, `backends` the shards' URLs as it knows them.

    `history` is None for a case that could not run; `incomplete` says why the record has an end that is not its own.
    """

    name: str
    history: History | None
    verdicts: Mapping[str, Verdict]
    events: Sequence[Mapping[str, Any]] = ()
    backends: Sequence[str] = ()
    scenario: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    incomplete: str = ""


def render(subject: Subject, template: str) -> str:
    """The report by the template of one of `FORMATS`."""
    zero = 0.0 if subject.history is None else bounds(subject.history)[0]
    failed = failures(subject.history, subject.verdicts, zero)
    return _TEMPLATES.get_template(template).render(
        subject=subject,
        title=title(subject.verdicts),
        sentences=story(subject.history, subject.verdicts, failed, zero),
        failures=failed,
        drawing=None if subject.history is None else draw(subject.history, subject.events, subject.backends),
        shapes=SHAPES,
        size={"width": WIDTH, "left": LEFT, "lane": LANE, "plot": PLOT},
        made=time.strftime("%Y-%m-%d %H:%M"),
    )


FORMATS: Mapping[str, Callable[[Subject], str]] = {
    "html": lambda subject: render(subject, "report.html.j2"),
    "md": lambda subject: render(subject, "report.md.j2"),
}
