"""A port that stays ours between the restarts of whoever listens on it.

A bound socket that never listens keeps the kernel from handing the port to anybody who asks for no port in particular,
outgoing connections included, and refuses it to everybody without SO_REUSEADDR. A listener with SO_REUSEADDR, which
the router is, binds beside it.
"""

import errno
import socket
from types import TracebackType
from typing import Self


class PortHold:
    """A context manager: `port` is held on `host` until it ends."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.port: int = sock.getsockname()[1]

    def close(self) -> None:
        """Give the port back; calling it twice is fine."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def hold_port(host: str, ports: range) -> PortHold:
    """Hold the first port of `ports` that nobody has; else the first that has only remains of connections.

    Raises OSError with the range when there is none.
    """
    for shared in (False, True):
        for port in ports:
            sock = _bound(host, port, shared=shared)
            if sock is not None:
                return PortHold(sock)
    raise OSError(errno.EADDRINUSE, f"no port from {ports.start} to {ports.stop - 1} is free on {host}")


def _bound(host: str, port: int, *, shared: bool) -> socket.socket | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Only afterwards, so that of two holders one is refused, and the listener is not.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shared)
        sock.bind((host, port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError as error:
        sock.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return sock
