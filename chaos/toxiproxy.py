"""The real Toxiproxy server and its proxies, for asyncio: the only file that knows toxiproxy-python.

What that library lacks is added here: a time limit for every call, an error for every status that is one, an address
for each server instead of one for the whole process, and no blocking of the event loop.
"""

import asyncio
import itertools
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from .guard import Guard
from .ports import PortLease
from .processes import ProcessGroup
from .provision import ToxiproxyUnavailableError, find_server

_CALL_WITHIN_S = 5.0  # old servers hang when some toxics are removed: a call never waits for ever
_READY_WITHIN_S = 10.0
_NO_PROXIES = {"http": None, "https": None, "all": None}  # HTTP_PROXY is not for loopback
_GOOD = range(200, 300)
_names = itertools.count()

Stream = Literal["downstream", "upstream"]


class ToxiproxyError(RuntimeError):
    """A call to the Toxiproxy server failed; the message has the call and the answer."""


class _Admin:
    """The admin API of one server."""

    def __init__(self, host: str, port: int) -> None:
        self.url = f"http://{host}:{port}"
        # The library keeps the address in class attributes; a subclass of our own leaves other servers theirs.
        self._consumer = type("Consumer", (APIConsumer,), {"host": host, "port": port})

    async def call(self, verb: Literal["get", "post", "delete"], path: str, json: Any = None) -> Any:
        """Make one call; its JSON answer, None for an empty one. Raises ToxiproxyError."""
        arguments: dict[str, Any] = {"timeout": _CALL_WITHIN_S, "proxies": _NO_PROXIES}
        if json is not None:
            arguments["json"] = json
        try:
            response = await asyncio.to_thread(getattr(self._consumer, verb), path, **arguments)
        except (ProxyExists, NotFound, InvalidToxic, OSError) as error:  # what requests raises is an OSError
            raise ToxiproxyError(f"{verb.upper()} {self.url}{path}: {error}") from error
        if response.status_code not in _GOOD:  # the library lets 5xx pass
            answer = f"{response.status_code} {response.text.strip()}"
            raise ToxiproxyError(f"{verb.upper()} {self.url}{path}: {answer}")
        return response.json() if response.content else None


class ToxicProxy:
    """One proxy in front of one port. Without toxics it passes everything on."""

    def __init__(self, admin: _Admin, name: str, port: int, upstream_port: int) -> None:
        self._admin = admin
        self._path = f"/proxies/{name}"
        self._settings = {"name": name, "listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{upstream_port}"}
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    async def add(self, kind: str, *, stream: Stream = "downstream", **attributes: int) -> None:
        """Add a toxic, on connections that are open and on new ones. Raises ToxiproxyError for an unknown one."""
        toxic = {"name": f"{kind}-{stream}", "type": kind, "stream": stream, "attributes": attributes}
        await self._admin.call("post", f"{self._path}/toxics", toxic)

    async def toxics(self) -> list[str]:
        """Names of the toxics that are on it."""
        return [toxic["name"] for toxic in await self._admin.call("get", f"{self._path}/toxics")]

    async def clear(self) -> None:
        """Remove every toxic and listen, if it was disabled. Connections whose bytes were withheld are closed."""
        try:
            for name in await self.toxics():
                await self._admin.call("delete", f"{self._path}/toxics/{name}")
            await self.enable()
        except ToxiproxyError:
            # A toxic that was slicing for a client that left may never be removed (2.12.0, about one time in forty).
            await self.remove()
            await self.create()

    async def create(self) -> None:
        """Have it listen, without toxics."""
        await self._admin.call("post", "/proxies", {**self._settings, "enabled": True})

    async def remove(self) -> None:
        """Close its connections and its port for good."""
        await self._admin.call("delete", self._path)

    async def disable(self) -> None:
        """Close its connections and its port: connecting is refused."""
        await self._admin.call("post", self._path, {"enabled": False})

    async def enable(self) -> None:
        """Listen again."""
        await self._admin.call("post", self._path, {"enabled": True})


class ToxiproxyServer:
    """A Toxiproxy server: the one at `url` or TOXIPROXY_URL, else one of our own that ends with the context.

    Entering it may build the program (`gymproof.chaos.provision`); raises ToxiproxyUnavailableError when it cannot be
    had. Of a server that was running already only what was made here is removed.
    """

    def __init__(self, url: str | None = None) -> None:
        self._given = url or os.environ.get("TOXIPROXY_URL") or None
        self._stack = AsyncExitStack()
        self.url = ""

    async def __aenter__(self) -> Self:
        try:
            self._admin = await self._connect(self._given) if self._given else await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        self.url = self._admin.url
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def proxy(self, upstream_port: int, name: str = "proxy") -> AsyncIterator[ToxicProxy]:
        """A proxy on a port of its own in front of 127.0.0.1:`upstream_port`, removed with its toxics at the end."""
        # Names are unique on a server that several runs share, and safe in a URL.
        unique = f"gymproof-{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}-{os.getpid()}-{next(_names)}"
        with PortLease() as lease:
            proxy = ToxicProxy(self._admin, unique, lease.port, upstream_port)
            await proxy.create()
            try:
                yield proxy
            finally:
                await proxy.remove()

    async def version(self) -> str:
        """The server's version, like "2.12.0"."""
        answer: dict[str, str] = await self._admin.call("get", "/version")
        return answer["version"]

    async def _connect(self, url: str) -> _Admin:
        parts = urlsplit(url if "//" in url else f"//{url}")
        admin = _Admin(parts.hostname or "127.0.0.1", parts.port or 8474)
        try:
            await admin.call("get", "/version")
        except ToxiproxyError as error:
            raise ToxiproxyUnavailableError(f"No Toxiproxy server answers at {url}: {error}.") from error
        return admin

    async def _start(self) -> _Admin:
        program = await asyncio.to_thread(find_server)
        lease = self._stack.enter_context(PortLease())
        guard = self._stack.enter_context(Guard())
        output = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gymproof-"))) / "toxiproxy.log"
        argv = [str(program), "-host", "127.0.0.1", "-port", str(lease.port)]
        try:
            server = ProcessGroup(argv, guard=guard, output=output)
        except OSError as error:
            raise ToxiproxyUnavailableError(f"{program} cannot be run: {error}.") from error
        self._stack.callback(server.close)
        admin = _Admin("127.0.0.1", lease.port)
        last = time.monotonic() + _READY_WITHIN_S
        while True:
            try:
                await admin.call("get", "/version")
            except ToxiproxyError as error:
                if server.exit_code() is not None or time.monotonic() > last:
                    raise ToxiproxyUnavailableError(f"{program} does not serve: {error}\n{server.tail()}") from error
                await asyncio.sleep(0.02)
            else:
                return admin
