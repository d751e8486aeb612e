"""Answers 503 when no shard is left, as most gateways do."""

from base import Router, main


class NoShard503(Router):
    nobody_status = 503


main(NoShard503)
