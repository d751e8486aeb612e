"""Relays an answer as it comes, and writes an error into it when it breaks."""

from aiohttp import ClientPayloadError, web
from base import Router, main


class AnswersTwice(Router):
    async def relay(self, request, upstream):
        response = web.StreamResponse(status=upstream.status, headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            async for piece in upstream.content.iter_any():
                await response.write(piece)
        except ClientPayloadError:
            request.transport.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}")
            request.transport.close()
        return response


main(AnswersTwice)
