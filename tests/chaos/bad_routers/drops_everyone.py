"""Throws away the work of every shard when one of them fails."""

import asyncio

from base import Failed, Router, main


class DropsEveryone(Router):
    def __init__(self, *args):
        super().__init__(*args)
        self.alarm = asyncio.Event()

    async def attempt(self, shard, request, body):
        work = asyncio.ensure_future(super().attempt(shard, request, body))
        alarm = asyncio.ensure_future(self.alarm.wait())
        try:
            await asyncio.wait({work, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
        finally:
            alarm.cancel()
            work.cancel()
        await asyncio.sleep(self.deadline_s / 3)
        raise Failed("all connections were dropped", blame=False)

    def on_failure(self, shard, failure):
        super().on_failure(shard, failure)
        self.alarm.set()
        self.alarm = asyncio.Event()


main(DropsEveryone)
