"""The router as an aiohttp application, for servers of somebody else's."""

import asyncio
import io

from gymproof.router.impl import GenerationRouterImpl


def test_the_application_for_other_servers_answers_the_same(kit):
    from aiohttp.test_utils import TestClient, TestServer  # noqa: PLC0415

    async def story():
        backend = kit.Backend(kit.serve)
        await backend.start()
        impl = GenerationRouterImpl(
            backend_urls=[backend.url],
            host="127.0.0.1",
            port=0,
            backend_timeout_s=5.0,
            connect_timeout_s=1.0,
            no_healthy_backend_status=409,
            max_body_mib=1,
        )
        async with TestClient(TestServer(impl.build_app())) as client:
            good = await client.post(kit.chat, data=b'{"a":1}')
            outside = await client.post("/pause")
            large = await client.post("/tokenize", data=io.BytesIO(b"x" * 2_000_000))
            seen = (
                good.status,
                await good.read(),
                outside.status,
                (await outside.json())["error"]["code"],
                large.status,
            )
        impl._router.fleet.close()
        await kit.settle()
        await backend.stop()
        return seen, backend.exchanges[0].body

    assert asyncio.run(story()) == ((200, kit.completion, 404, "not_found", 413), b'{"a":1}')
