"""The real clients that contracts are measured of, by the name that users give them."""

from collections.abc import Mapping

from .base import ChatClient, ClientKind, ClientUnavailableError
from .nemo_gym import KIND as NEMO_GYM
from .openai_sdk import KIND as OPENAI
from .verifiers_chain import KIND as VERIFIERS

CLIENTS: Mapping[str, ClientKind] = {"nemo-gym": NEMO_GYM, "openai": OPENAI, "verifiers": VERIFIERS}


def client_kind(name: str) -> ClientKind:
    """The client `name`; LookupError with the known ones for any other."""
    if name not in CLIENTS:
        raise LookupError(f"unknown client {name!r}; known: {', '.join(CLIENTS)}")
    return CLIENTS[name]


__all__ = ["CLIENTS", "ChatClient", "ClientKind", "ClientUnavailableError", "client_kind"]
