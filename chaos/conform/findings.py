"""What was found out about a router: plain values, and their JSON form.

How a finding comes about belongs elsewhere, and how it is shown too.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

FORMAT = 1


class ScorecardError(ValueError):
    """A file is no scorecard; the message names it and says what is wrong in it."""


class Word(StrEnum):
    """The verdicts, best first. UNKNOWN is what could not be judged, and is never counted for a router."""

    SAFE = "safe"
    BOUNDED = "bounded"  # the client gives up, or does less than it could, but comes to an end
    UNSAFE = "unsafe"
    NOT_APPLICABLE = "not applicable"
    UNKNOWN = "unknown"


class Group(StrEnum):
    """What a check is about, in the order in which reports show it."""

    ONE = "a fault on one shard"
    ALL = "a fault on every shard"
    RECOVERY = "recovery"
    PAYLOAD = "payload fidelity"
    HEADERS = "headers"
    PATHS = "paths"
    AFFINITY = "affinity"
    CANCELLATION = "cancellation"
    LOAD = "size and load"
    RESTART = "restart under load"

    @property
    def slug(self) -> str:
        """By which options, folders and links know it."""
        return self.name.lower()


BY_FAULT = (
    Group.ONE,
    Group.ALL,
    Group.RECOVERY,
)  # their checks are scenarios; the other groups have checks of their own


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Finding(_Value):
    """One check of a router. `group` and `check` name it; no two findings of a router share both."""

    group: Group
    check: str  # such as "kill_group", "request_body"
    word: Word
    seen: str  # in one line
    right: str = ""  # what a router has to do instead, in one line; "" where nothing is to be mended
    evidence: tuple[str, ...] = ()  # lines: bytes on both sides, attempts, timing
    records: str = ""  # the folder with all that was recorded, relative to the scorecard's; "" if there is none
    seconds: float = 0.0

    @property
    def key(self) -> tuple[Group, str]:
        """What it is known by."""
        return self.group, self.check


class Scorecard(_Value):
    """All that was found out about one router in one run."""

    format: int = FORMAT
    router: str  # the preset's name, or what the user calls the router
    title: str
    version: str  # "" where it does not say
    command: str  # the `--router-cmd` template, so that anybody can run it again
    settings: str = ""  # what was set, and why
    client: str  # whose contract judged, with its version
    started: float  # Unix seconds
    seconds: float
    complete: bool = True  # False: it was interrupted, and `findings` are what there was until then
    versions: Mapping[str, str]  # of the judge: gymproof, python, toxiproxy-server
    machine: Mapping[str, str]
    findings: tuple[Finding, ...]

    @model_validator(mode="before")
    @classmethod
    def _format_is_known(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("format", FORMAT) != FORMAT:
            raise ValueError(f"it has format {data['format']!r}, and this gymproof reads {FORMAT}")
        return data

    @model_validator(mode="after")
    def _checks_are_unique(self) -> Self:
        for (group, check), times in Counter(finding.key for finding in self.findings).items():
            if times > 1:
                raise ValueError(f"{times} findings of {group}: {check}")
        return self

    def words(self) -> dict[tuple[Group, str], Word]:
        """The verdict of each check."""
        return {finding.key: finding.word for finding in self.findings}

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_bytes(orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_INDENT_2))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read one. Raises ScorecardError."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ScorecardError(f"{path}: cannot be read: {error.strerror}") from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise ScorecardError(f"{path}: no scorecard: {where}: {first['msg']}") from error
