"""The sockets that the router listens on.

They are bound by the caller, synchronously, so that a taken port is the caller's exception and not a surprise on a
thread that nobody watches.
"""

import contextlib
import errno
import socket

from .config import RouterConfig
from .listener import BACKLOG
from .urls import authority

WRONG_PORT = frozenset({errno.EADDRINUSE, errno.EACCES})


class BindError(OSError):
    """An address cannot be listened on; `key` is the setting that is to blame."""

    def __init__(self, number: int | None, message: str, key: str = "") -> None:
        super().__init__(number, message)  # its `args`, by which it is pickled
        self.key = key

    def __str__(self) -> str:
        return str(self.strerror)


def bind(host: str, port: int) -> socket.socket:
    """A bound and listening TCP socket. Raises BindError.

    The address is free again at once after a crash (SO_REUSEADDR), so a restarted router gets its port back.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _refused(host, port, error) from None
    return listener


def _refused(host: str, port: int, error: OSError) -> BindError:
    key = "port" if error.errno in WRONG_PORT else "host"
    right = "a free port, or 0 for any," if key == "port" else "an address of this machine"
    message = f"cannot listen on {authority(host, port)}: {error.strerror}; {right} would be right"
    return BindError(error.errno, message, key)


def bind_both(config: RouterConfig) -> tuple[socket.socket, socket.socket | None]:
    """The user port's socket and, if there is one, the admin port's. Raises BindError, and then holds neither."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(bind(config.host, config.port))
        admin = None
        if config.admin_port is not None:
            try:
                admin = stack.enter_context(bind(config.admin_host, config.admin_port))
            except BindError as error:
                error.key = f"admin_{error.key}"
                raise
        stack.pop_all()
    return listener, admin
