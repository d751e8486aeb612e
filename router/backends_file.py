"""Membership from a file, which is the whole set, each time: one backend URL a line, `#` starts a comment.

A file that ends in .yaml is read as the endpoints of llm-d's file discovery.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from yaml import YAMLError

from .config import ConfigError
from .events import LOG
from .unique_yaml import load_yaml
from .urls import BadBackendUrlError, Endpoint, authority, parse_backend

POLL_S = 1.0
ROLE_LABEL = "llm-d.ai/role"
Stamp: TypeAlias = tuple[int, int, int]  # when, how large, which file


def parse_lines(text: str, name: str) -> list[Endpoint]:
    """The endpoints in a file's text, each once. Raises ConfigError with the file's name and the line number."""
    endpoints: dict[str, Endpoint] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        url = line.partition("#")[0].strip()
        if not url:
            continue
        try:
            endpoint = parse_backend(url)
        except BadBackendUrlError as error:
            raise ConfigError(f"{name}:{number}: {error}", "backends_file") from None
        endpoints.setdefault(endpoint.key, endpoint)
    return list(endpoints.values())


def parse_endpoints(text: str, name: str) -> list[Endpoint]:
    """The endpoints of llm-d's file discovery, each once. Raises ConfigError with the file's name."""
    try:
        document = load_yaml(text)
        entries = document["endpoints"] or []
        urls = [f"http://{authority(entry['address'], int(entry['port']))}" for entry in entries]
        roles = {(entry.get("labels") or {}).get(ROLE_LABEL) for entry in entries}
    except (YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{name}: is no llm-d endpoints file: {error!r}", "backends_file") from None
    if "prefill" in roles:
        raise ConfigError(f"{name}: has prefill endpoints; serve --topology takes these", "backends_file")
    return parse_lines("\n".join(urls), name)


def read_backends(path: Path) -> list[Endpoint]:
    """The endpoints in a file. Raises ConfigError, also for one that names none."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}", "backends_file") from None
    parse = parse_endpoints if path.suffix in {".yaml", ".yml"} else parse_lines
    endpoints = parse(text, str(path))
    if not endpoints:
        raise ConfigError(f"{path}: names no backend; one URL a line would be right", "backends_file")
    return endpoints


async def watch(path: Path, apply: Callable[[Sequence[Endpoint]], None], poll_s: float = POLL_S) -> None:
    """Call `apply` with the full set at first, and whenever the file has changed and then stayed for one poll.

    A file that cannot be read, names none or is gone changes nothing: the last good set stays. Runs until cancelled.
    """
    seen = _stamp(path)
    applied: Stamp | None = (0, 0, 0)  # none yet: the file may have changed since it was read for the start
    while True:
        await asyncio.sleep(poll_s)
        before, seen = seen, _stamp(path)
        if seen != before or seen == applied:
            continue
        applied = seen
        if seen is None:
            LOG.warning("backends file %s is gone: the backends stay as they are", path)
            continue
        try:
            apply(read_backends(path))
        except ConfigError as error:
            LOG.error("backends file is not applied: %s", error)


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
