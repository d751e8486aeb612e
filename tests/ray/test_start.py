"""The first start fails in the driver, with the reason in the message, and leaves nothing behind."""

import asyncio
from functools import partial

import pytest

ray = pytest.importorskip("ray", reason="needs the ray extra")

from gymproof.chaos.ports import PortLease  # noqa: E402
from gymproof.router.actor import GenerationRouterActor, RouterStartError, start_router_actor  # noqa: E402

BACKENDS = ["http://127.0.0.1:1/v1"]
TIMES = {"backend_timeout_s": 5.0, "connect_timeout_s": 1.0}


def test_a_range_without_a_free_port(tools):
    with PortLease() as lease, tools.listening(lease.port), pytest.raises(OSError, match=f"{lease.port} is free"):
        start_router_actor(backend_urls=BACKENDS, host="127.0.0.1", ports=range(lease.port, lease.port + 1), **TIMES)


def test_a_port_that_was_taken_in_between(tools):
    with PortLease() as lease, tools.listening(lease.port):
        actor = GenerationRouterActor.remote(
            backend_urls=BACKENDS, host="127.0.0.1", port=lease.port, no_healthy_backend_status=409, **TIMES
        )
        with pytest.raises(ray.exceptions.ActorDiedError, match=f"cannot listen on 127.0.0.1:{lease.port}"):
            ray.get(actor.base_url.remote(), timeout=60.0)


def test_a_configuration_that_gym_would_hang_on():
    with PortLease() as lease:
        ports = range(lease.port, lease.port + 1)
        with pytest.raises(RouterStartError, match=f"127.0.0.1:{lease.port}.*(?s:.*)503"):
            start_router_actor(
                backend_urls=BACKENDS, host="127.0.0.1", ports=ports, no_healthy_backend_status=503, **TIMES
            )
        with start_router_actor(backend_urls=BACKENDS, host="127.0.0.1", ports=ports, **TIMES) as router:
            assert router.base_url == f"http://127.0.0.1:{lease.port}/v1"


def test_a_crash_during_the_first_start_is_ridden_out(tools):
    async def story() -> None:
        with PortLease() as lease:
            ports = range(lease.port, lease.port + 1)
            start = partial(start_router_actor, backend_urls=BACKENDS, host="127.0.0.1", ports=ports, **TIMES)
            starting = asyncio.create_task(asyncio.to_thread(start))
            tools.kill(await tools.until(tools.actor_pid, "the actor's process", 30.0))
            with await starting as router:
                assert await router.actor.is_serving.remote()

    asyncio.run(story())


def test_more_cpus_than_there_are():
    """An actor that cannot be placed is no router."""
    with PortLease() as lease:
        ports = range(lease.port, lease.port + 1)
        hogs = [ray.remote(num_cpus=3)(_Hog).remote()]
        ray.get([hog.ready.remote() for hog in hogs])
        with pytest.raises(RouterStartError, match="does not serve"):
            start_router_actor(backend_urls=BACKENDS, host="127.0.0.1", ports=ports, start_timeout_s=2.0, **TIMES)
        for hog in hogs:
            ray.kill(hog)


class _Hog:
    def ready(self):
        return True


def test_the_url_has_the_nodes_address():
    with PortLease() as lease:
        ports = range(lease.port, lease.port + 1)
        with start_router_actor(backend_urls=BACKENDS, ports=ports, **TIMES) as router:
            assert router.base_url == f"http://{ray.util.get_node_ip_address()}:{lease.port}/v1"
        with start_router_actor(backend_urls=BACKENDS, ports=ports, host="0.0.0.0", **TIMES) as router:
            assert router.base_url == f"http://{ray.util.get_node_ip_address()}:{lease.port}/v1"
