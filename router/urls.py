"""Backend URLs: what a user may write, and the parts that a request needs.

Gym appends `/chat/completions` to a base that ends in `/v1`, and calls `/tokenize` on the base without it; so the
`/v1` of a backend URL is taken off here, and the whole inbound path is put behind what is left.
"""

import re
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import SplitResult, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
_USER = re.compile(r"^(\w+://)?.*@", re.DOTALL)


class BadBackendUrlError(ValueError):
    """A configured backend URL cannot be used; the message names it and what is wrong."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a backend listens."""

    url: str  # as the user wrote it, without surrounding space: the name it has in every report
    key: str  # the same for every spelling of the same backend
    host: str
    port: int
    tls: bool
    authority: bytes  # for the Host header
    base_path: bytes  # "" or "/prefix", without "/v1" and without a trailing slash


def shown(value: Any) -> str:
    """A configured value as it may be shown: without the user and the password that may be in a URL."""
    if isinstance(value, str):
        return repr(_USER.sub(r"\1***@", value))
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    return repr(value)


def authority(host: str, port: int) -> str:
    """`host:port` as it is written in a URL: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _refuse(url: str, why: str) -> NoReturn:
    raise BadBackendUrlError(f"backend URL {shown(url)}: {why}")


def _port_of(url: str, parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        _refuse(url, "the port is not a number between 1 and 65535")
    if port == 0:
        _refuse(url, "the port is not a number between 1 and 65535")
    return port or DEFAULT_PORTS[parts.scheme]


def parse_backend(text: str) -> Endpoint:
    """Read a backend URL: `http://host:port`, with or without `/v1`, a trailing slash or a base path; IPv6 in brackets.

    Raises BadBackendUrlError.
    """
    url = text.strip()
    try:
        parts = urlsplit(url)
    except ValueError:
        _refuse(url, "is not a URL")  # urlsplit's own words may repeat a password
    if parts.scheme not in DEFAULT_PORTS:
        _refuse(url, "must start with http:// or https://")
    if not parts.hostname:
        _refuse(url, "names no host")
    if parts.username is not None or parts.query or parts.fragment:
        _refuse(url, "must not contain a user, a query or a fragment")
    if not url.isascii() or any(c.isspace() for c in url):
        _refuse(url, "must be plain ASCII without spaces")
    port = _port_of(url, parts)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    base = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return Endpoint(
        url=url,
        key=f"{parts.scheme}://{host}:{port}{base}",
        host=parts.hostname,
        port=port,
        tls=parts.scheme == "https",
        authority=(host if port == DEFAULT_PORTS[parts.scheme] else f"{host}:{port}").encode(),
        base_path=base.encode(),
    )
