"""Passes a shard's redirect on, so that clients leave for the shard."""

from aiohttp import web
from base import Router, main


class RelaysRedirects(Router):
    async def relay(self, request, upstream):
        if upstream.status == 307:
            return web.Response(status=307, headers={"Location": upstream.headers["Location"]})
        return await super().relay(request, upstream)


main(RelaysRedirects)
