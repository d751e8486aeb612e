"""Keeps the parameters of a request for its next attempt, although a decode shard has fetched what they name."""

from base import Router, main


class ReusesParameters(Router):
    async def prepare(self, request, body):
        if "params" not in request:
            request["params"] = await super().prepare(request, body)
        return request["params"]


main(ReusesParameters)
