"""Scenario files as tests, and what the tests of one pytest process share. The plugin wires it in."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .choices import Setup, without_prefill
from .faults.base import Layer
from .portal import Portal
from .provision import ToxiproxyUnavailableError, find_server
from .recording import load_run
from .report import write as write_report
from .runner import run_case
from .scenario import Case, ScenarioError, cases
from .stage import Session
from .summary import write_verdicts
from .under_test import RouterError

_REAL_FLEET_TIMEOUT_S = 900  # the first test waits for the fleet too


class Suite:
    """One pytest process's fleet and Toxiproxy, on a loop of their own, until `close`."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        try:
            self.session = Session(setup)
        except (ScenarioError, RouterError) as error:
            raise pytest.UsageError(str(error)) from error
        self._stack = contextlib.ExitStack()
        self.portal = self._stack.enter_context(Portal())
        try:
            self._stack.enter_context(self.portal.inside(self.session))
        except ToxiproxyUnavailableError as error:
            self._stack.close()
            raise pytest.UsageError(str(error)) from error

    def close(self) -> None:
        """Stop whatever was started."""
        self._stack.close()


SUITE = pytest.StashKey[Suite]()


def suite_of(config: pytest.Config) -> Suite:
    """The suite of this pytest process, made at first need from its options."""
    if SUITE not in config.stash:
        out = config.getoption("--chaos-out")
        suite = Suite(
            Setup(
                # pytest keeps its last three temporary folders, so the records of a failure can be looked at.
                out=Path(out) if out else config._tmp_path_factory.mktemp("chaos"),  # type: ignore[attr-defined]  # noqa: SLF001
                fleet=config.getoption("--fleet"),
                client=config.getoption("--chaos-client"),
                router_cmd=config.getoption("--router-cmd"),
                seed=config.getoption("--chaos-seed"),
                toxiproxy_url=config.getoption("--toxiproxy-url"),
                shards=config.getoption("--chaos-shards"),
                vllm_python=config.getoption("--vllm-python"),
                model=config.getoption("--vllm-model"),
                vllm_args=tuple(config.getoption("--vllm-arg")),
            )
        )
        config.add_cleanup(suite.close)
        config.stash[SUITE] = suite
    return config.stash[SUITE]


def provide_toxiproxy(config: pytest.Config) -> None:
    """Find or build the server's program. If it can't be had, the tests that need it say so and fail."""
    if config.getoption("--toxiproxy-url") or os.environ.get("TOXIPROXY_URL"):
        return
    with contextlib.suppress(ToxiproxyUnavailableError):
        find_server(config.get_terminal_writer().line)


class ScenarioFailed(Exception):  # noqa: N818 - a verdict, not an error of the suite
    """A case did not pass; `lines` say which checks and why."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class ScenarioFile(pytest.File):
    """A scenario file; its tests are its cases."""

    def collect(self) -> Iterator["ScenarioItem"]:
        """Read the file: a mistake in it is a collection error that names the key."""
        try:
            found = cases(self.path)
        except ScenarioError as error:
            raise self.CollectError(str(error)) from error
        for case in found:
            item: ScenarioItem = ScenarioItem.from_parent(self, name=case.name, case=case)
            item.add_marker("chaos")
            if self.config.getoption("--fleet") != "sim":
                item.add_marker(pytest.mark.timeout(_REAL_FLEET_TIMEOUT_S))
            why = without_prefill(self.config.getoption("--fleet"), self.config.getoption("--router-cmd"))
            if why and case.scenario.fleet.prefill:
                item.add_marker(pytest.mark.skip(reason=why))
            if any(plan.fault.layer is Layer.TOXIC for plan in case.scenario.fault):
                item.add_marker("toxiproxy")
            yield item


class ScenarioItem(pytest.Item):
    """One case as a test: it passes if every check does."""

    def __init__(self, *, case: Case, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case

    def runtest(self) -> None:
        """Run and judge the case."""
        suite = suite_of(self.config)
        result = suite.portal.call(run_case(suite.session, self.case))
        write_verdicts(result)
        write_report(load_run(result.folder))
        if result.failures():
            raise ScenarioFailed([*result.failures(), f"records: {result.folder}"])

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the verdicts instead of a traceback."""
        if isinstance(excinfo.value, ScenarioFailed):
            return "\n".join([self.case.scenario.title, *excinfo.value.lines])
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The file, its first line, which pytest wants of what it skips, and the case's name."""
        return self.path, 0, self.name
