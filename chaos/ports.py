"""Ports that stay ours while nothing listens on them.

A killed shard and a restarted router come back on the same port, so the port must not be handed to anybody else in
between. Leases lie below the kernel's ephemeral range (32768 and up on Linux), and a lock file keeps parallel runs
apart.
"""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

_RANGE = range(20_000, 32_000)


class PortLease:
    """A loopback port that no other gymproof run on this machine takes while the lease is held."""

    def __init__(self) -> None:
        folder = Path(tempfile.gettempdir()) / f"gymproof-ports-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        # Parallel runs start at different places, so that they do not try the same ports one after the other.
        start = random.SystemRandom().randrange(len(_RANGE))
        for offset in range(len(_RANGE)):
            port = _RANGE[(start + offset) % len(_RANGE)]
            lock = _lock(folder / str(port))
            if lock is None:
                continue
            if _free(port):
                self.port, self._lock = port, lock
                return
            os.close(lock)
        raise OSError(f"no free port between {_RANGE.start} and {_RANGE.stop - 1} on 127.0.0.1")

    def release(self) -> None:
        """Give the port back; calling it twice is fine."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _lock(path: Path) -> int | None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
