"""When a prefill leg fails, asks the decode shard with the parameters of the last one that did not."""

from contextlib import suppress

from base import Failed, Router, main


class HalfPairs(Router):
    last = None

    async def prepare(self, request, body):
        with suppress(Failed):
            self.last = await super().prepare(request, body)
        return self.last


main(HalfPairs)
