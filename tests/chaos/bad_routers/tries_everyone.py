"""Tries every shard it has, so that one poison request takes the fleet."""

from base import Router, main


class TriesEveryone(Router):
    max_attempts = 1000

    def pick(self, tried):
        return next((shard for shard in self.shards if shard not in tried), None)


main(TriesEveryone)
