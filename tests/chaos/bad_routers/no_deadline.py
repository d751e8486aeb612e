"""Waits for a shard for as long as it takes."""

from base import Router, main


class NoDeadline(Router):
    async def handle(self, request):
        return await self.route(request, await request.read())


main(NoDeadline)
