"""The clients that drive rollouts, by name."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from .base import GymClient
from .gym_like import open_gym_like
from .nemo_gym import open_nemo_gym
from .openai import open_openai

Print = Callable[[str], None]
CLIENTS: dict[str, Callable[[str, Print | None], AbstractAsyncContextManager[GymClient]]] = {
    "nemo-gym": open_nemo_gym,
    "gym-like": open_gym_like,
    "openai": open_openai,
}


def open_client(name: str, base_url: str, on_print: Print | None = None) -> AbstractAsyncContextManager[GymClient]:
    """Open client `name` on `base_url` (`http://host:port/v1`); ValueError for a name that `CLIENTS` lacks.

    `on_print` gets what the client says on its console, if it says anything.
    """
    if name not in CLIENTS:
        raise ValueError(f"unknown client {name!r}: known are {', '.join(sorted(CLIENTS))}")
    return CLIENTS[name](base_url, on_print)


__all__ = ["CLIENTS", "GymClient", "open_client"]
