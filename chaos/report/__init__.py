"""The report of a run: one self-contained HTML file, or Markdown for a ticket.

`story` puts a run into words and `drawing` into coordinates, both plain functions over records; `pages` fills the
templates. Nothing here knows how a run came about.
"""

from .pages import FORMATS, render, write

__all__ = ["FORMATS", "render", "write"]
