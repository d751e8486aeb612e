"""What a client is to whoever measures or drives it. The files beside this one each know one real client."""

import importlib.metadata
import platform
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..contract import Timing


class ClientUnavailableError(ImportError):
    """A user asked for a real client on a machine without it. The message has the command that installs it."""


class ChatClient(Protocol):
    """A client with its own retry loop; connections are pooled from call to call."""

    async def chat(self, base_url: str, /, **body: Any) -> Any:
        """POST `body` to `{base_url}/chat/completions`; the decoded answer, or whatever it raises."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a client is measured in less time than it would take in earnest. Seconds.

    `sleep_s` stands for its pauses between tries (None: its own), `silence_s` and `connect_s` for its timeouts, where
    it has any. `patience_s` and `heal_after_s` are those of `learn.observe`, and have to outlast all its tries.
    """

    sleep_s: float | None = 0.001
    silence_s: float = 5.0  # the slowest case that does answer takes one, and a busy machine more
    connect_s: float = 3.0
    patience_s: float = 8.0
    heal_after_s: float = 1.0
    concurrency: int = 24

    def with_real_sleeps(self) -> "Pace":
        """The same, but for the client's own pauses."""
        return replace(self, sleep_s=None, patience_s=self.patience_s + 4, heal_after_s=self.heal_after_s + 7)


class Opener(Protocol):
    """Opens the real client in the running loop; its connection pool closes with the context."""

    def __call__(self, pace: Pace | None = None) -> AbstractAsyncContextManager[ChatClient]:
        """Open it as it comes, or at a pace for measuring. ClientUnavailableError where it is missing."""


@dataclass(frozen=True, slots=True)
class ClientKind:
    """One client that a contract can be measured of.

    `package` is its name on PyPI, `under` are the packages below it that its behaviour depends on.
    """

    package: str
    how_to_get_it: Callable[[], str]
    under: Sequence[str]
    open: Opener
    timing: Callable[[], Timing]
    pace: Pace = Pace()

    def version(self) -> str:
        """Version of the installed package; ClientUnavailableError when there is none."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            raise ClientUnavailableError(f"{self.package} is not installed: {self.how_to_get_it()}") from None

    def measured_with(self) -> dict[str, str]:
        """Versions under the client that its behaviour depends on; what this version of it does without is left out."""
        present = {name: version for name in self.under if (version := _version(name))}
        return {"python": platform.python_version(), **present}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
