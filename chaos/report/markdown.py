"""Text that has to stay text in Markdown as GitHub reads it, whatever a router or a client put into it."""

import re

# A dollar sign starts mathematics on GitHub, which a backslash does not stop; nor does it stop HTML in every reader.
_ESCAPES = str.maketrans(
    {**{mark: f"\\{mark}" for mark in r"\`*_[]|~"}, "<": "&lt;", ">": "&gt;", "&": "&amp;", "$": "&#36;"}
)


def plain(line: str) -> str:
    """One line that can be seen: control characters, and others that would hide or turn text, as Python writes them."""
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in line)


def text(words: str) -> str:
    """Words in a sentence, or in a cell of a table."""
    return plain(" ".join(words.split())).translate(_ESCAPES)


def code(words: str) -> str:
    """A name or a command in a line, or in a cell of a table."""
    inner = plain(words).replace("|", "\\|")
    ticks = "`" * _longest_run(inner, 1)
    space = " " if inner.startswith("`") or inner.endswith("`") else ""
    return f"{ticks}{space}{inner}{space}{ticks}"


def fence(block: str) -> str:
    """Lines as they are."""
    ticks = "`" * _longest_run(block, 3)
    return "\n".join([f"{ticks}text", *map(plain, block.split("\n")), ticks])


def _longest_run(words: str, least: int) -> int:
    """As many backticks as no run in `words` has."""
    return max([least, *(len(run) + 1 for run in re.findall("`+", words))])
