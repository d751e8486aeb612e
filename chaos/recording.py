"""The folder of one run: written while it runs, so that what happened before a crash can be read, and read again.

    run.json             about the run: what ran, where, with which versions, when, and whether it came to its end
    scenario.toml        the scenario as it was run, with the values that were fitted to its fleet
    history.jsonl        every record (`history.py`), one JSON object a line, appended as it happens
    router-events.jsonl  the router's own log, where the router under test writes one
    client.log           what the client printed
    verdicts.json        what the checkers made of it; absent if the run was cut off
    junit.xml            the same, for machines

A folder of several runs (`gym-chaos run --out`) has one such folder for each case, and the shards' logs in `fleet`.
"""

import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from .checkers.base import Status, Verdict
from .choices import Setup
from .history import History, Limits, Record, line_of
from .scenario import Case, ScenarioError, Scope, load
from .scenario_toml import dump
from .served import read_served

RUN, SCENARIO, HISTORY, EVENTS = "run.json", "scenario.toml", "history.jsonl", "router-events.jsonl"
VERDICTS, JUNIT, CLIENT = "verdicts.json", "junit.xml", "client.log"
FORMAT = 1


class RecordingError(ValueError):
    """A folder is no record of a run; the message says what is missing or wrong in it."""


class About(BaseModel):
    """`run.json`. `started` and `ended` are Unix seconds; `started_mono` is the same start on the history's clock."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: int
    case: str
    scope: Scope
    pace: float
    complete: bool
    started: float
    started_mono: float
    ended: float | None
    status: Status | None  # the worst verdict; None while there is none
    setup: dict[str, Any]  # the options of the run: fleet, client, router_cmd, seed, ...
    shard_logs: tuple[str, ...]  # the shards' own logs, relative to the folder
    versions: dict[str, str]  # of Python and of every package in its environment, and of vLLM where it has its own
    machine: dict[str, Any]
    argv: tuple[str, ...]


class Recording:
    """The folder of a run under way. `complete` in its `run.json` is false until `end`."""

    def __init__(self, folder: Path, case: Case, setup: Setup) -> None:
        self.folder = folder
        self._about = About(
            format=FORMAT,
            case=case.name,
            scope=case.scope,
            pace=case.pace,
            complete=False,
            started=time.time(),
            started_mono=time.monotonic(),
            ended=None,
            status=None,
            setup=_plain(setup),
            shard_logs=(),
            versions=installed(),
            machine=machine(),
            argv=tuple(sys.argv),
        )
        self._write(case)
        self._file = (folder / HISTORY).open("ab", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def begin(self, case: Case, limits: Limits, shard_logs: Sequence[Path], versions: Mapping[str, str]) -> History:
        """The history to record into, once the case was fitted to its fleet; each record is in the file at once.

        `versions` are of what runs beside this environment.
        """
        logs = tuple(os.path.relpath(log, self.folder) for log in shard_logs)
        known = {**self._about.versions, **versions}
        self._about = self._about.model_copy(update={"pace": case.pace, "shard_logs": logs, "versions": known})
        self._write(case)
        self._append(limits)
        return History(limits, sink=self._append)

    def say(self, text: str) -> None:
        """Keep what the client printed."""
        with (self.folder / CLIENT).open("a") as file:
            file.write(f"{text}\n")

    def end(self, status: Status) -> None:
        """The run has come to its end and was judged."""
        self._about = self._about.model_copy(update={"complete": True, "ended": time.time(), "status": status})
        self._write_about()

    def _append(self, record: Record) -> None:
        self._file.write(line_of(record))

    def _write(self, case: Case) -> None:
        (self.folder / SCENARIO).write_text(dump(case.scenario.model_copy(update={"scopes": (case.scope,)})))
        self._write_about()

    def _write_about(self) -> None:
        whole = self.folder / f"{RUN}.new"  # so that whoever reads it meanwhile has the old one or the new one
        whole.write_bytes(orjson.dumps(self._about.model_dump(mode="json"), option=orjson.OPT_INDENT_2))
        whole.replace(self.folder / RUN)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A recorded run, read back. What a run that was cut off did not get to is None or empty."""

    path: Path
    about: About
    case: Case
    history: History | None  # None: it ended before anything was recorded
    events: tuple[Mapping[str, Any], ...]  # the router's own
    verdicts: Mapping[str, Verdict]
    unreadable: tuple[str, ...]  # "FILE:LINE: TEXT" for what could not be read

    @property
    def complete(self) -> bool:
        """Whether the run came to its end."""
        return self.about.complete


def load_run(path: Path) -> RunFolder:
    """Read a run's folder. Raises RecordingError for one that is none."""
    about = _about(path)
    try:
        scenario = load(path / SCENARIO)
    except ScenarioError as error:
        raise RecordingError(str(error)) from error
    events, unreadable = _events(path / EVENTS)
    history, broken = _history(path, about)
    verdicts, garbled = _verdicts(path / VERDICTS)
    return RunFolder(
        path=path,
        about=about,
        case=Case(about.case, scenario, about.scope, path / SCENARIO, about.pace),
        history=history,
        events=events,
        verdicts=verdicts,
        unreadable=(
            *(f"{HISTORY}:{line}" for line in broken),
            *(f"{EVENTS}:{line}" for line in unreadable),
            *(f"{VERDICTS}: {why}" for why in garbled),
        ),
    )


def load_runs(path: Path) -> list[RunFolder]:
    """The run in a folder, or the runs in the folders in it, by when they started. Raises RecordingError if none is."""
    if (path / RUN).exists():
        return [load_run(path)]
    runs = [load_run(found.parent) for found in path.glob(f"*/{RUN}")]
    if not runs:
        raise RecordingError(f"{path}: no {RUN} in it, nor in the folders in it: this is no record of a run")
    return sorted(runs, key=lambda run: run.about.started)


def installed() -> dict[str, str]:
    """Versions of Python and of every package in its environment."""
    found = {name: dist.version for dist in distributions() if (name := dist.metadata["Name"])}
    return {"python": platform.python_version(), **dict(sorted(found.items(), key=lambda item: item[0].lower()))}


def machine() -> dict[str, Any]:
    """What the run ran on."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }


def _plain(setup: Setup) -> dict[str, Any]:
    fields: dict[str, Any] = orjson.loads(orjson.dumps(setup, default=str))
    return fields


def _about(path: Path) -> About:
    file = path / RUN
    try:
        about = About.model_validate_json(file.read_bytes())
    except OSError as error:
        raise RecordingError(f"{file}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise RecordingError(f"{file}: not about a run: {error.errors(include_url=False)[0]['msg']}") from error
    if about.format != FORMAT:
        raise RecordingError(f"{file}: format {about.format}; this version reads {FORMAT}")
    return about


def _history(path: Path, about: About) -> tuple[History | None, Sequence[str]]:
    """The history, where the run was cut off with what the shards' own logs have of it; and its unreadable lines."""
    file = path / HISTORY
    try:
        history = History.read(file)
    except (OSError, ValueError) as error:
        begun = about.complete or (file.exists() and file.stat().st_size > 0)
        return None, (f" {error}",) if begun else ()
    if not about.complete and not history.served:
        for shard, log in enumerate(about.shard_logs):
            for served in read_served(path / log, shard):
                if served.started >= about.started_mono:
                    history.add(served)
    return history, history.unreadable


def _events(path: Path) -> tuple[tuple[Mapping[str, Any], ...], list[str]]:
    """The router's events, and the lines that are none. A router that writes no log has none."""
    events: list[Mapping[str, Any]] = []
    unreadable: list[str] = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), start=1):
        try:
            events.append(_object(line))
        except ValueError:
            unreadable.append(f"{number}: {line[:200].decode(errors='replace')}")
    return tuple(events), unreadable


def _object(line: bytes) -> dict[str, Any]:
    """The JSON object of a line. Raises ValueError."""
    found = orjson.loads(line)
    if not isinstance(found, dict):
        raise ValueError(f"no JSON object: {found!r}")  # noqa: TRY004 - as orjson's own
    return found


def _verdicts(path: Path) -> tuple[dict[str, Verdict], Sequence[str]]:
    """The verdicts, and why they cannot be read if they cannot: the run may have been cut off while it wrote them."""
    if not path.exists():
        return {}, ()
    try:
        return {
            name: Verdict(Status(verdict["status"]), verdict["why"], tuple(verdict["evidence"]))
            for name, verdict in _object(path.read_bytes())["verdicts"].items()
        }, ()
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        return {}, (f"{type(error).__name__}: {error}",)
