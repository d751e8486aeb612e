"""Takes a client that leaves for a shard that fails."""

import asyncio

from base import Router, main


class EjectsOnHangUps(Router):
    async def attempt(self, shard, request, body):
        try:
            return await super().attempt(shard, request, body)
        except asyncio.CancelledError:
            self.eject(shard)
            raise

    async def probe(self, shard):
        pass


main(EjectsOnHangUps)
