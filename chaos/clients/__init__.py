"""The clients that drive rollouts, by name."""

from contextlib import AbstractAsyncContextManager

from .base import ClientOptions, GymClient, OpenClient, Print
from .bounded import bounded
from .gym_like import open_gym_like
from .nemo_gym import open_nemo_gym
from .openai import open_openai

CLIENTS: dict[str, OpenClient] = {
    "nemo-gym": open_nemo_gym,
    "gym-like": open_gym_like,
    "openai": open_openai,
    "nemo-gym-bounded": bounded("nemo-gym"),
    "openai-bounded": bounded("openai"),
}


def open_client(
    name: str, base_url: str, on_print: Print | None = None, *, answer_within_s: float | None = None
) -> AbstractAsyncContextManager[GymClient]:
    """Open client `name` on `base_url` (`http://host:port/v1`); ValueError for a name that `CLIENTS` lacks.

    `on_print` gets what the client says on its console, if it says anything. Only the bounded clients, which have no
    clocks of their own, take `answer_within_s`: the seconds that one try may last.
    """
    if name not in CLIENTS:
        raise ValueError(f"unknown client {name!r}: known are {', '.join(sorted(CLIENTS))}")
    return CLIENTS[name](ClientOptions(base_url, on_print, answer_within_s))


__all__ = ["CLIENTS", "GymClient", "open_client"]
