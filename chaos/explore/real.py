"""Cases with real processes, for a campaign: one session for all of them, since a fleet takes a second to start."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..choices import Setup
from ..runner import run_case
from ..scenario import Case
from ..scenario_toml import dump
from ..stage import Session
from .campaign import Level, Verdicts


@contextmanager
def real_level(setup: Setup) -> Iterator[Level]:
    """Run cases as `gym-chaos run` does. Raises what `Session` raises."""
    session = Session(setup)
    with asyncio.Runner() as runner:
        runner.run(session.__aenter__())
        try:

            def run(case: Case, seed: int) -> Verdicts:  # noqa: ARG001 - real processes take no seed
                source = _file(case, setup.out)
                return runner.run(run_case(session, replace(case, source=source))).verdicts

            yield run
        finally:
            runner.run(session.__aexit__(None, None, None))


def _file(case: Case, out: Path) -> Path:
    """The case as a file, which its folder gets a copy of."""
    folder = out / "drawn"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / case.source.name
    file.write_text(dump(case.scenario))
    return file
