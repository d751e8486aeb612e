"""The shape of the repository: packaging and who may import whom."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = ("router", "chaos", "validators")
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def sources(part: str) -> Iterator[Path]:
    return (ROOT / part).rglob("*.py")


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, in absolute form."""
    package = ["gymproof", *path.relative_to(ROOT).parent.parts]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield ".".join([*base, *([node.module] if node.module else [])])


def test_every_folder_with_code_is_packaged():
    folders = {path.parent for part in PARTS for path in sources(part)}
    expected = {".".join(["gymproof", *folder.relative_to(ROOT).parts]) for folder in folders}

    assert expected == set(SETUPTOOLS["packages"])


def test_every_data_file_is_packaged():
    shipped = {
        path.relative_to(ROOT)
        for name, patterns in SETUPTOOLS["package-data"].items()
        if name != "*"
        for pattern in patterns
        for path in (ROOT / name.removeprefix("gymproof.").replace(".", "/")).glob(pattern)
    }
    present = {
        path.relative_to(ROOT)
        for part in PARTS
        for path in (ROOT / part).rglob("*")
        if path.suffix in (".toml", ".json", ".j2")
    }

    assert present == shipped


@pytest.mark.parametrize(
    ("part", "forbidden"),
    [
        ("router", "gymproof.chaos"),
        ("chaos", "gymproof.router"),
        ("validators", "gymproof.router"),
        ("validators", "gymproof.chaos"),
    ],
)
def test_a_part_never_imports(part: str, forbidden: str):
    offenders = [str(path) for path in sources(part) if any(name.startswith(forbidden) for name in imports(path))]

    assert offenders == []


@pytest.mark.parametrize(
    ("part", "module", "allowed"),
    [
        ("router", "ray", {"router/actor.py"}),
        ("router", "httptools", {"router/wire.py", "router/request_reader.py", "router/response_reader.py"}),
        ("chaos", "ray", {"chaos/ray_cluster.py"}),
        ("chaos", "toxiproxy", {"chaos/toxiproxy.py"}),
        ("chaos", "nemo_gym", set()),
        ("chaos", "openai", set()),
        ("chaos", "verifiers", set()),
        ("validators", "nemo_gym", set()),
        ("validators", "openai", set()),
        ("validators", "verifiers", set()),
    ],
)
def test_a_foreign_module_is_known_to_one_file(part: str, module: str, allowed: set[str]):
    users = {
        str(path.relative_to(ROOT))
        for path in sources(part)
        if any(name.split(".")[0] == module for name in imports(path))
    }

    assert users <= allowed


def test_nothing_imports_the_ray_actor():
    """The router works without Ray."""
    users = [
        str(path)
        for part in PARTS
        for path in sources(part)
        if path.name != "actor.py" and any(name.startswith("gymproof.router.actor") for name in imports(path))
    ]

    assert users == []


def test_upstream_connections_are_opened_in_one_file():
    openers = {
        str(path.relative_to(ROOT))
        for path in sources("router")
        if "create_connection" in path.read_text() or "open_connection" in path.read_text()
    }

    assert openers <= {"router/transport.py"}


def test_the_plugin_is_light():
    """Other people's pytest runs import the plugin at each start: only pytest and its own choices."""
    heavy = {"gymproof.chaos.stage", "gymproof.chaos.scenario", "gymproof.chaos.clients", "aiohttp", "pydantic"}
    plugin = ast.parse((ROOT / "chaos" / "pytest_plugin.py").read_text())
    top = {ast.unparse(node) for node in plugin.body if isinstance(node, ast.Import | ast.ImportFrom)}

    assert not [line for line in top if any(name.rsplit(".", 1)[-1] in line for name in heavy)]
