"""When a prefill leg fails, asks the decode shard with the parameters of the last one that did not."""

from base import Failed, Router, main


class HalfPairs(Router):
    last = None

    async def prepare(self, request, body):
        try:
            self.last = await super().prepare(request, body)
        except Failed:
            pass
        return self.last


main(HalfPairs)
