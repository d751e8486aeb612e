"""Takes a client's mistake for a shard's."""

from base import Router, main


class EjectsOn400s(Router):
    async def relay(self, request, upstream):
        if 400 <= upstream.status < 500:
            self.eject(request["shard"])
        return await super().relay(request, upstream)

    async def probe(self, shard):
        pass


main(EjectsOn400s)
