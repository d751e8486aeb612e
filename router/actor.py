"""The router as a Ray actor, and how a training driver starts it. Nothing else imports ray, and nothing this."""

import asyncio
import http.client
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .answers import REASON_HEADER
from .controller import RouterLostError, RouterUnavailableError
from .events import configure_logging
from .reserve import PortHold, hold_port
from .restartable import RestartableRouter
from .urls import authority

# NeMo-RL's range for it.
PORTS = range(6000, 6100)
# What `start_router_actor` fills in.
SETTINGS: dict[str, Any] = {
    "backend_timeout_s": 600.0,
    "connect_timeout_s": 5.0,
    "no_healthy_backend_status": 409,
    "health_managed": True,
}
SELF_PROBE_S = 5.0
REACHED_WITHIN_S = 0.5
GONE_WITHIN_S = 10.0
WILDCARDS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  to be told from an address, not to be bound


class RouterStartError(RuntimeError):
    """The router's actor does not serve; the message has its URL and why."""


@ray.remote(num_cpus=1, num_gpus=0, max_restarts=-1)
class GenerationRouterActor(RestartableRouter):
    """`GenerationRouterImpl` as an actor that serves from its construction on, and comes back on its port.

    The first construction raises what prevents that, into the driver's first call. A restarted one waits for its port
    and otherwise ends its process: see `restartable`.
    """

    def __init__(self, **settings: Any) -> None:
        configure_logging(settings.get("log_format", "text"))
        super().__init__(restarted=_is_restart(), **settings)


def _is_restart() -> bool:
    """Whether the driver has seen this actor serve, or may have: what is not known counts as a restart."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray warns of its own use of `actor_id`
            return bool(ray.get_runtime_context().was_current_actor_reconstructed)
    except Exception:  # noqa: BLE001  asked of a server that can be away, in a place where nothing may be raised
        return True


class ActorRouter:
    """A router's actor, as `controller.RouterHandle`."""

    def __init__(self, actor: ActorHandle[Any]) -> None:
        self._actor = actor

    async def instance_id(self) -> str:
        """See RouterHandle. Bounded, since Ray takes 2 s to say that an actor restarts, which it may have done by then.

        Giving up on the others would lose what they bring.
        """
        try:
            async with asyncio.timeout(REACHED_WITHIN_S):
                return str(await self._call("instance_id"))
        except TimeoutError:
            raise RouterUnavailableError(f"no answer within {REACHED_WITHIN_S:g} s") from None

    async def set_serving_backends(self, urls: list[str]) -> None:
        """See RouterHandle."""
        await self._call("set_serving_backends", urls)

    async def announce_pause(self) -> None:
        """See RouterHandle."""
        await self._call("announce_pause")

    async def announce_resume(self) -> None:
        """See RouterHandle."""
        await self._call("announce_resume")

    async def drain_backend_outcomes(self) -> dict[str, tuple[int, int]]:
        """See RouterHandle. Never sent twice by Ray, since that would count what it brings twice."""
        return dict(await self._call("drain_backend_outcomes"))

    async def _call(self, method: str, *arguments: object) -> Any:
        try:
            return await getattr(self._actor, method).options(max_task_retries=0).remote(*arguments)
        except ActorDiedError as error:
            raise RouterLostError(f"the router's actor is gone for good: {error}") from None
        except RayError as error:
            raise RouterUnavailableError(f"{method}: {error}") from None


@dataclass(frozen=True, slots=True)
class StartedRouter:
    """A router's actor that serves. A context manager; the driver keeps it for the life of the run.

    Its end kills the actor and gives the port back.
    """

    actor: ActorHandle[Any]
    base_url: str  # for NeMo-Gym; stays the same over restarts
    hold: PortHold

    def handle(self) -> ActorRouter:
        """What a FleetController takes."""
        return ActorRouter(self.actor)

    def close(self) -> None:
        """Kill the actor, for good, wait until nobody listens any more, and give the port back."""
        with self.hold:
            ray.kill(self.actor, no_restart=True)
            _wait_until_gone(urlsplit(self.base_url).hostname or "", self.hold.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start_router_actor(
    *,
    backend_urls: Sequence[str],
    ports: range = PORTS,
    host: str | None = None,
    start_timeout_s: float = 60.0,
    **settings: Any,
) -> StartedRouter:
    """Start the router on this node and return once it has answered on its URL.

    `ports` is where its port is taken from, once; `host` what it binds, by default this node's address as Ray has it.
    Further settings are those of `GenerationRouterImpl`, SETTINGS where they are not given, and of RestartableRouter.
    With `health_managed`, requests wait after each start for a controller's push, for `first_push_within_s` at most:
    that has to be longer than a controller's tick.

    Blocks. Raises OSError when no port is free, and RouterStartError, which names the reason, when the actor does not
    serve within `start_timeout_s`.
    """
    own = ray.util.get_node_ip_address()
    bound = host or own
    with ExitStack() as stack:
        hold = stack.enter_context(hold_port(bound, ports))
        actor = _start_here(backend_urls=list(backend_urls), host=bound, port=hold.port, **(SETTINGS | settings))
        stack.callback(ray.kill, actor, no_restart=True)
        address = own if bound in WILDCARDS else bound
        _wait_until_serving(actor, address, hold.port, start_timeout_s)
        stack.pop_all()
    return StartedRouter(actor, f"http://{authority(address, hold.port)}/v1", hold)


def _start_here(**settings: Any) -> ActorHandle[Any]:
    """Start the actor on this node, the only one where its URL leads to it."""
    here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
    actor_class: Any = GenerationRouterActor  # which has `options` only once ray.remote has been at it
    return actor_class.options(scheduling_strategy=here).remote(**settings)


def _wait_until_serving(actor: ActorHandle[Any], address: str, port: int, timeout_s: float) -> None:
    give_up = time.monotonic() + timeout_s
    while True:
        try:
            ray.get(actor.is_serving.remote(), timeout=max(give_up - time.monotonic(), 0.0))
            return _probe(address, port)
        except ActorUnavailableError as error:  # it crashed while it started, and is started again
            if time.monotonic() < give_up:
                continue
            raise _start_error(address, port, error) from None
        except (RayError, OSError, http.client.HTTPException) as error:
            raise _start_error(address, port, error) from None


def _probe(address: str, port: int) -> None:
    """Ask for a path that only the router itself answers. Raises OSError or HTTPException."""
    connection = http.client.HTTPConnection(address, port, timeout=SELF_PROBE_S)
    try:
        connection.request("GET", "/router-self-probe")
        if connection.getresponse().getheader(REASON_HEADER) is None:
            raise OSError("somebody else answers there")
    finally:
        connection.close()


def _wait_until_gone(address: str, port: int) -> None:
    """Ray does not wait for those it kills. Leaves it at GONE_WITHIN_S seconds: whoever binds next says so."""
    give_up = time.monotonic() + GONE_WITHIN_S
    while time.monotonic() < give_up:
        try:
            _probe(address, port)
        except ConnectionRefusedError:
            return
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.02)


def _start_error(address: str, port: int, error: Exception) -> RouterStartError:
    return RouterStartError(f"the router's actor does not serve on {authority(address, port)}: {error}")
