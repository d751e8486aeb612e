"""`python gymproof_preload.py`: imports vLLM once, then forks real API servers, each in some seconds.

A server's start is half a minute of imports, its own and those of its engine, which it spawns. Here both are forked,
which is safe on a CPU, where nothing has been started that a fork would lose. A line of JSON on stdin starts a server:

    {"argv": ["--port", "8001", ...], "env": {"NAME": "value"}, "output": "/path"}

and lines of JSON on stdout tell what came of it: {"ready": true}, {"started": pid}, {"ended": pid, "code": -9}. When
stdin ends, so does this program, with every server that still lives.
"""

import importlib
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, NoReturn

_API = "vllm.entrypoints.launchers"
_PRELOAD = (
    f"{_API}.api_server.entry",
    f"{_API}.app",
    f"{_API}.cli_args",
    "vllm.entrypoints.generate.api_router",
    "vllm.model_executor.model_loader.default_loader",
    "vllm.model_executor.models.llama",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_model_runner",
    "vllm.v1.worker.cpu_worker",
    "transformers.models.llama",
    "uvloop",
)


def preload() -> None:
    """Import what a server needs, and have its engine forked too."""
    for name in _PRELOAD:
        importlib.import_module(name)
    _fork_engines()
    _keep_ports_to_servers()


def _fork_engines() -> None:
    """VLLM's CPU platform forces its engines to be spawned; put that back, after it has done the rest."""
    platform: Any = importlib.import_module("vllm.platforms.cpu").CpuPlatform
    original = platform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, config: Any) -> None:
        original(cls, config)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    platform.check_and_update_config = classmethod(check_and_update_config)


def _keep_ports_to_servers() -> None:
    """A spawned engine does not have its server's listening socket, so a forked one closes it."""
    launcher: Any = importlib.import_module(f"{_API}.launcher")
    original = launcher.create_server_socket
    listening: list[socket.socket] = []

    def create_server_socket(*args: Any, **kwargs: Any) -> socket.socket:
        listening.append(original(*args, **kwargs))
        return listening[-1]

    launcher.create_server_socket = create_server_socket

    def close_all() -> None:
        for server in listening:
            server.close()

    os.register_at_fork(after_in_child=close_all)


class Servers:
    """The servers that were forked and have not ended."""

    def __init__(self, replies: int) -> None:
        self._replies = replies
        self._handles: dict[int, int] = {}  # pidfd: pid

    def handles(self) -> list[int]:
        """What becomes readable when a server ends."""
        return list(self._handles)

    def tell(self, **event: Any) -> None:
        """Write one line to the harness; if that is gone, stdin has ended too."""
        with suppress(BrokenPipeError):
            os.write(self._replies, json.dumps(event).encode() + b"\n")

    def start(self, order: dict[str, Any]) -> None:
        """Fork one server."""
        pid = os.fork()
        if pid == 0:
            os.close(self._replies)
            _serve(order)
        self._handles[os.pidfd_open(pid)] = pid
        self.tell(started=pid)

    def reap(self, handle: int) -> None:
        """Take notice of one server's end."""
        pid = self._handles.pop(handle)
        os.close(handle)
        self.tell(ended=pid, code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    def kill(self) -> None:
        """End all of them with their engines."""
        for pid in self._handles.values():
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def _serve(order: dict[str, Any]) -> NoReturn:
    """Be an API server, in a session of its own, until it ends."""
    code = 1
    try:
        os.setsid()
        output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for wanted, actual in ((null, 0), (output, 1), (output, 2)):
            os.dup2(wanted, actual)
        os.environ.update(order["env"])
        sys.argv = ["vllm", *order["argv"]]
        importlib.import_module(f"{_API}.api_server.entry").main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - a forked child must not return into its parent's loop
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Obey stdin until it ends."""
    servers = Servers(os.dup(1))
    os.dup2(2, 1)  # vLLM prints to stdout, which is for replies
    preload()
    servers.tell(ready=True)
    orders = b""
    try:
        while True:
            for handle in select.select([0, *servers.handles()], [], [])[0]:
                if handle:
                    servers.reap(handle)
                    continue
                data = os.read(0, 1 << 16)
                if not data:
                    return
                *lines, orders = (orders + data).split(b"\n")
                for line in lines:
                    servers.start(json.loads(line))
    finally:
        servers.kill()


if __name__ == "__main__":
    main()
