"""`python -m gymproof.chaos.conform.peers.nemo_rl ... URL...`: NeMo-RL's generation router, without its trainer.

The router and its health ledger are NeMo-RL's own; the loop that drives them here stands for the trainer's.
"""

import argparse
import asyncio
import sys
from typing import Any

import aiohttp

from .options import router_options

_PROBE_EVERY_S = 1.0
_PROBE_WITHIN_S = 0.9  # NeMo-RL refuses a probe that may outlast the interval


def router(options: argparse.Namespace, urls: list[str]) -> Any:
    """NeMo-RL's router, serving. Raises ImportError without NeMo-RL, OSError for a taken port."""
    from nemo_rl.models.generation.generation_router import GenerationRouterImpl  # noqa: PLC0415 - heavy

    made = GenerationRouterImpl(
        backend_urls=urls,
        host="127.0.0.1",
        port=options.port,
        backend_timeout_s=options.deadline_s,
        connect_timeout_s=options.deadline_s,  # it never tries another shard, so that nothing is won by less
        no_healthy_backend_status=409,
        health_managed=True,
    )
    made.serve_in_background()
    return made


def ledger(urls: list[str]) -> Any:
    """NeMo-RL's record of which shards may serve."""
    from nemo_rl.models.generation.fleet_health import (  # noqa: PLC0415 - heavy
        FleetHealthPolicy,
        GenerationFleetHealth,
    )

    policy = FleetHealthPolicy(unhealthy_threshold=2, healthy_threshold=1)
    return GenerationFleetHealth(shard_count=len(urls), policy=policy, base_urls=list(urls))


def tick(fleet: Any, serving: Any, alive: list[bool]) -> None:
    """What the trainer does after each round of probes.

    A dead shard that answers again has, in a real run, been restarted and given the weights: it serves again.
    """
    for index, (shard, ok) in enumerate(zip(fleet.snapshot(), alive, strict=True)):
        if shard.is_serving:
            fleet.record_probe(index, ok=ok, error="" if ok else "no 200 from /health")
        elif ok:
            fleet.report_refit(index, weight_version=0)
    for url, count in serving.drain_backend_failures().items():
        index = fleet.shard_for_base_url(url)
        for _ in range(count):
            fleet.report_failure(index, RuntimeError("the router saw a request fail"))
    serving.set_serving_backends(fleet.serving_base_urls())


async def drive(fleet: Any, serving: Any, urls: list[str]) -> None:
    """Probe all shards together, once a second, for ever."""
    timeout = aiohttp.ClientTimeout(total=_PROBE_WITHIN_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while serving.is_serving():
            alive = await asyncio.gather(*(_alive(session, url.removesuffix("/v1")) for url in urls))
            tick(fleet, serving, alive)
            await asyncio.sleep(_PROBE_EVERY_S)


async def _alive(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/health") as answer:
            return answer.ok
    except (aiohttp.ClientError, TimeoutError):
        return False


def main(argv: list[str]) -> None:
    """Serve until a signal ends it."""
    options = router_options("python -m gymproof.chaos.conform.peers.nemo_rl").parse_args(argv)
    urls = [f"{url}/v1" for url in options.backends]
    asyncio.run(drive(ledger(urls), router(options, urls), urls))


if __name__ == "__main__":
    main(sys.argv[1:])
