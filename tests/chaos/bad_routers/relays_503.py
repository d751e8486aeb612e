"""Passes a shard's 503 on, as if the client knew what to do with it."""

from base import Router, main


class Relays503(Router):
    def check(self, path, status, payload):
        if status != 503:
            super().check(path, status, payload)


main(Relays503)
