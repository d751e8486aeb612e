"""The pytest plugin: options, the `chaos` marker, scenario files as tests, fixtures. It only wires.

Every `*.chaos.toml` that pytest collects becomes a test for each of its scopes. The heavy parts are imported when a
scenario or a fixture needs them, so that other people's test runs start as fast as before.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .choices import GYM_ROUTER, contract_client, resolve_client

if TYPE_CHECKING:
    from .pytest_suite import ScenarioFile, Suite


def pytest_addoption(parser: pytest.Parser) -> None:
    """The suite's options."""
    group = parser.getgroup("chaos", "gymproof: chaos suite")
    group.addoption(
        "--fleet",
        default="sim",
        help="backends of the chaos suite: sim, ray (the same on nodes of a Ray cluster), vllm",
    )
    group.addoption("--router-cmd", default=GYM_ROUTER, metavar="CMD", help="the router under test")
    group.addoption("--chaos-client", default="auto", help="auto, nemo-gym or gym-like")
    group.addoption("--chaos-out", default=None, metavar="DIR", help="where histories go (a temporary folder)")
    group.addoption("--chaos-seed", type=int, default=0, help="seed of prompts and simulated answers")
    group.addoption("--toxiproxy-url", default=None, metavar="URL", help="a Toxiproxy server that already runs")
    group.addoption("--chaos-shards", type=int, default=None, metavar="N", help="shards, whatever a scenario says")
    group.addoption("--vllm-python", default=None, metavar="FILE", help="the interpreter that has vLLM")
    group.addoption("--vllm-model", default=None, metavar="MODEL", help="path or name (a tiny model made on the spot)")
    group.addoption("--vllm-arg", action="append", default=[], metavar="ARG", help="one more argument for vllm serve")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line("markers", "chaos: a chaos scenario, run against real processes")
    config.addinivalue_line(
        "markers", "toxiproxy: needs the real Toxiproxy server, which is built before the first test"
    )


def pytest_report_header(config: pytest.Config) -> str:
    """Say which client drives, since a machine without the real one gets the equal one."""
    client = resolve_client(config.getoption("--chaos-client"))
    absent = " (the real NeMo-Gym client is absent: it needs Python >= 3.12 and the gym extra)"
    return f"gymproof: client {client}{absent if client == 'gym-like' else ''}, fleet {config.getoption('--fleet')}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "ScenarioFile | None":
    """Make tests of every scenario file."""
    if not file_path.name.endswith(".chaos.toml"):
        return None
    from .pytest_suite import ScenarioFile  # noqa: PLC0415 - see the module docstring

    file: ScenarioFile = ScenarioFile.from_parent(parent, path=file_path)
    return file


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Refuse bad options before the first test, and get Toxiproxy: its one build takes longer than a test may."""
    if any(item.get_closest_marker("chaos") for item in session.items):
        from .pytest_suite import suite_of  # noqa: PLC0415

        suite_of(session.config)
    if any(item.get_closest_marker("toxiproxy") or "toxiproxy" in _fixtures(item) for item in session.items):
        from .pytest_suite import provide_toxiproxy  # noqa: PLC0415

        provide_toxiproxy(session.config)


def _fixtures(item: pytest.Item) -> tuple[str, ...]:
    return tuple(getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def chaos_suite(pytestconfig: pytest.Config) -> "Suite":
    """The suite behind the other fixtures: its portal, fleet and Toxiproxy."""
    from .pytest_suite import suite_of  # noqa: PLC0415

    return suite_of(pytestconfig)


@pytest.fixture
def fleet(chaos_suite: "Suite") -> Any:
    """Three shards that serve when the test starts; `fleet.shards[1].signal("engine", signal.SIGSTOP)` wedges one."""
    from .portal import Blocking  # noqa: PLC0415
    from .scenario import FleetTable  # noqa: PLC0415

    return Blocking(
        chaos_suite.portal,
        chaos_suite.portal.call(chaos_suite.session.fleet(chaos_suite.session.fleet_table(FleetTable()))),
    )


@pytest.fixture(scope="session")
def toxiproxy(chaos_suite: "Suite") -> Any:
    """The real Toxiproxy server."""
    from .portal import Blocking  # noqa: PLC0415

    return Blocking(chaos_suite.portal, chaos_suite.portal.call(chaos_suite.session.toxiproxy()))


@pytest.fixture
def router(chaos_suite: "Suite", fleet: Any, tmp_path: Path) -> Iterator[Any]:
    """The router under test in front of `fleet`: `.url`, `.stop(signum)`, `.start()`."""
    from .portal import Blocking  # noqa: PLC0415
    from .under_test import RouterUnderTest, Wiring  # noqa: PLC0415

    urls = [shard.url for shard in fleet.shards]
    client = contract_client(resolve_client(chaos_suite.setup.client))
    wiring = Wiring(urls, deadline_s=5.0, max_attempts=2, folder=tmp_path, client=client)
    under_test = RouterUnderTest(chaos_suite.setup.router_cmd, wiring, chaos_suite.session.guard)
    with chaos_suite.portal.inside(under_test) as running:
        yield Blocking(chaos_suite.portal, running)


@pytest.fixture
def gym_client(chaos_suite: "Suite", router: Any) -> Iterator[Any]:
    """A NeMo-Gym client that calls through `router`: `.chat(**body)`, `.tokenize(**body)`."""
    from .clients import open_client  # noqa: PLC0415
    from .portal import Blocking  # noqa: PLC0415

    manager = open_client(resolve_client(chaos_suite.setup.client), f"{router.url}/v1")
    with chaos_suite.portal.inside(manager) as client:
        yield Blocking(chaos_suite.portal, client)
