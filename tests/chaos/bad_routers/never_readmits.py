"""Ejects for good."""

from base import Router, main


class NeverReadmits(Router):
    async def probe(self, shard):
        pass


main(NeverReadmits)
