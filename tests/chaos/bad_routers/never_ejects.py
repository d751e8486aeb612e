"""Sends a conversation to its shard and nowhere else, dead or alive, so that Gym's three tries are burnt on it."""

import zlib

from base import Failed, Router, main


class NeverEjects(Router):
    async def route(self, request, body):
        conversation = body.partition(b"call=")[2].partition(b".")[0]
        request["shard"] = self.shards[zlib.crc32(conversation) % len(self.shards)]
        try:
            return await self.attempt(request["shard"], request, body)
        except Failed:
            return self.error(500, "failed")


main(NeverEjects)
