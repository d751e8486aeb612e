"""Tries every shard it has, so that one poison request takes the fleet."""

from base import Router, main


class TriesEveryone(Router):
    max_attempts = 1000


main(TriesEveryone)
