"""A node is a loopback address: what a program would listen on for all or for itself, it listens on for that one."""

import os
import socket
from typing import Any

EVERYWHERE = {"0.0.0.0", "127.0.0.1"}
NODE = os.environ.get("SLURMD_NODENAME")
bind = socket.socket.bind


def bind_there(sock: socket.socket, address: Any) -> None:
    if sock.family == socket.AF_INET and address[0] in EVERYWHERE and address[1]:
        address = (NODE, address[1])
    bind(sock, address)


if NODE:
    socket.socket.bind = bind_there  # type: ignore[method-assign]
