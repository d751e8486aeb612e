"""Gives each inner try the whole deadline, and a little more."""

import asyncio

from base import Failed, Router, main


class AnswersLate(Router):
    async def handle(self, request):
        return await self.route(request, await request.read())

    async def attempt(self, shard, request, body):
        try:
            async with asyncio.timeout(self.deadline_s * 2.5):
                return await super().attempt(shard, request, body)
        except TimeoutError as error:
            raise Failed("timeout") from error


main(AnswersLate)
