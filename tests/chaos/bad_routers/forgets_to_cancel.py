"""Leaves the upstream request running when nobody waits for it any more."""

import asyncio

from base import Router, main


class ForgetsToCancel(Router):
    async def attempt(self, shard, request, body):
        return await asyncio.shield(super().attempt(shard, request, body))


main(ForgetsToCancel)
