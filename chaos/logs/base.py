"""What a reader of one log format returns: values only, each with the line that it comes from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Harm = tuple[str, tuple[tuple[str, Any], ...]]  # a fault's kind and parameters, as a scenario has them

_SHOWN_CHARS = 160


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that a log says about a shard (its host:port), and the fault that would do the same, if one would."""

    line: str  # "FILE:LINE"
    says: str
    shard: str | None = None  # None: it does not say which
    at: float | None = None  # Unix seconds
    harm: Harm | None = None


@dataclass(slots=True)
class Reading:
    """One file, read."""

    file: str
    format: str
    shards: list[str] = field(default_factory=list)  # host:port of every shard that it names, in order
    signs: list[Sign] = field(default_factory=list)
    limits: dict[str, float] = field(default_factory=dict)  # what it says of the router's own limits
    gaps: list[str] = field(default_factory=list)  # what it cannot say
    unreadable: list[str] = field(default_factory=list)  # lines that could not be read
    ignored: int = 0  # lines that say nothing about a failure

    def name(self, url: str) -> str:
        """The shard of a URL, host:port, noted as one of the fleet."""
        shard = urlsplit(url if "//" in url else f"//{url}").netloc
        if shard not in self.shards:
            self.shards.append(shard)
        return shard

    def broken(self, number: int, line: str) -> None:
        """Note a line that could not be read."""
        self.unreadable.append(f"{self.file}:{number}: {line[:_SHOWN_CHARS]}")


@dataclass(frozen=True, slots=True)
class LogFormat:
    """One format: whether a text is of it, and what it says. To `read`, nothing is an error: it notes what it can't."""

    recognises: Callable[[str], bool]
    read: Callable[[str, str], Reading]  # of the text and the file's name


def harm(kind: str, **parameters: Any) -> Harm:
    """A fault as a scenario names it."""
    return kind, tuple(parameters.items())


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, from 1."""
    return ((number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip())
