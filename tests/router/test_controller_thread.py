"""The controller for a driver without an event loop, and against a real router and a real shard in this process."""

import asyncio
import threading
import time
from contextlib import closing

import pytest

from gymproof.router.controller import FleetController, FleetExhaustedError, LocalRouter, ask_health
from gymproof.router.controller_thread import ControllerThread
from gymproof.router.health import State
from gymproof.router.impl import GenerationRouterImpl
from gymproof.router.sockets import bind

A, B = "http://a:8000/v1", "http://b:8000/v1"
WAIT_S = 10.0


class Router:
    """Remembers the last push."""

    def __init__(self) -> None:
        self.serving: list[str] | None = None
        self.pushed = threading.Event()
        self.paused = False

    async def instance_id(self) -> str:
        return "one"

    async def set_serving_backends(self, urls: list[str]) -> None:
        self.serving = urls
        self.pushed.set()

    async def announce_pause(self) -> None:
        self.paused = True

    async def announce_resume(self) -> None:
        self.paused = False

    async def drain_backend_outcomes(self) -> dict[str, tuple[int, int]]:
        return {}


def check_for(thread: ControllerThread, within_s: float) -> None:
    """Do as a driver does, for a while."""
    last = time.monotonic() + within_s
    while time.monotonic() < last:
        thread.check()
        time.sleep(0.005)


async def alive(_url: str) -> bool:
    return True


def test_it_ticks_until_its_end():
    router = Router()
    with ControllerThread(FleetController(router, [A, B], probe=alive), every_s=0.01) as controller:
        assert router.pushed.wait(WAIT_S)
        controller.check()
        assert controller.states() == {A: State.HEALTHY, B: State.HEALTHY}

    assert "fleet controller" not in {thread.name for thread in threading.enumerate()}


def test_a_report_has_reached_the_router_when_it_returns():
    router = Router()
    with ControllerThread(FleetController(router, [A, B], probe=alive)) as controller:
        controller.report_restart(A)
        assert router.serving == [B]
        controller.report_refit(A)
        assert router.serving == [A, B]
        controller.announce_pause()
        assert router.paused
        controller.announce_resume()
        assert not router.paused


def test_a_report_on_a_shard_of_nobody_raises_in_the_driver():
    with ControllerThread(FleetController(Router(), [A], probe=alive)) as controller:
        with pytest.raises(KeyError, match="not a shard of this fleet"):
            controller.report_restart(B)
        controller.check()


def test_an_exhausted_fleet_is_the_drivers_next_check():
    controller = FleetController(Router(), [A], probe=alive, exhausted_after_s=0.0)
    with ControllerThread(controller, every_s=0.01) as thread:
        thread.report_restart(A)
        with pytest.raises(FleetExhaustedError, match=A):
            check_for(thread, WAIT_S)
        with pytest.raises(FleetExhaustedError):
            thread.report_refit(A)


def test_the_default_probe_tells_a_listener_from_nobody():
    async def refuse_to_say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def story() -> None:
        sock = bind("127.0.0.1", 0)
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
        server = await asyncio.start_server(refuse_to_say, sock=sock)
        async with server:
            assert await ask_health(url)
        assert not await ask_health(url)

    asyncio.run(story())


def test_a_router_in_the_same_process_is_driven_the_same_way():
    settings = {"backend_timeout_s": 5.0, "connect_timeout_s": 1.0, "no_healthy_backend_status": 409}
    router = GenerationRouterImpl(backend_urls=[A, B], host="127.0.0.1", port=0, health_managed=True, **settings)

    async def story() -> None:
        controller = FleetController(LocalRouter(router), [A, B], probe=alive)
        await controller.tick()
        assert router.metrics()["serving_backends"] == 2
        await controller.report_restart(A)
        assert router.metrics()["serving_backends"] == 1
        await controller.announce_pause()
        assert router._router.fleet.paused
        await controller.announce_resume()
        assert not router._router.fleet.paused

    with closing(router):
        router.serve_in_background()
        asyncio.run(story())
