"""Relays an answer as it comes, so a cut one reaches the client cut."""

from aiohttp import ClientPayloadError, web
from base import Router, main


class Truncates(Router):
    async def relay(self, request, upstream):
        response = web.StreamResponse(status=upstream.status, headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            async for piece in upstream.content.iter_any():
                await response.write(piece)
        except ClientPayloadError:
            request.transport.abort()
        return response


main(Truncates)
