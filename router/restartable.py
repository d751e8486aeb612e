"""A router that somebody restarts: it comes back on its port, or ends its process so that it is restarted again.

Ray takes an exception in the constructor of a restarted actor for the actor's end, `max_restarts=-1` or not, and
NeMo-Gym retries the refused connections that follow without end. A process that dies is what Ray restarts. So the
first construction raises, since somebody is there to read it, and a later one never does. Nothing of Ray is here.
"""

import os
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from .events import LOG
from .impl import GenerationRouterImpl

RETRY_S = 0.1
EXIT_CODE = 70  # EX_SOFTWARE


class RestartableRouter(GenerationRouterImpl):
    """`GenerationRouterImpl`, serving from its constructor on.

    With `restarted`, whatever prevents that (the port of a predecessor that is still dying, a file that cannot be
    read) is tried again for `settle_s` seconds, and then ends the process. So does the end of the serving thread, at
    any time: a holder that lives and does not serve is one that nobody restarts.

    Raises ConfigError, and OSError for a port that is taken; with `restarted`, nothing.
    """

    def __init__(self, *, restarted: bool, settle_s: float = 30.0, **settings: Any) -> None:
        self._closing = False
        self._instance_id = uuid.uuid4().hex
        give_up = time.monotonic() + settle_s
        for step in (partial(super().__init__, **settings), self.serve_in_background):
            _insist(step, give_up) if restarted else step()
        threading.Thread(target=self._end_with_the_server, name="gym-router watch", daemon=True).start()

    def instance_id(self) -> str:
        """Another one after each restart: whoever pushed to the one before has to push again."""
        return self._instance_id

    def close(self, *, drain: bool = False) -> None:
        """Stop serving and join the thread; the process goes on."""
        self._closing = True
        super().close(drain=drain)

    def _end_with_the_server(self) -> None:
        thread = self._thread
        if thread is not None:
            thread.join()
        if not self._closing:
            _end_process("the router's thread has ended")


def _insist(step: Callable[[], None], give_up: float) -> None:
    """Repeat `step` until it works; at `give_up`, on time.monotonic(), end the process."""
    while True:
        try:
            return step()
        except Exception as error:  # noqa: BLE001  whatever it is, raising it would be the end of the actor
            if time.monotonic() >= give_up:
                _end_process(f"the restarted router cannot serve: {error}")
        time.sleep(RETRY_S)


def _end_process(why: str) -> NoReturn:
    LOG.critical("%s; the process ends, to be restarted", why)
    os._exit(EXIT_CODE)
