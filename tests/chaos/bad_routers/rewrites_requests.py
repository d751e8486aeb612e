"""Parses requests into what it knows of the API, and drops the rest."""

import orjson
from base import Router, main

KNOWN = {"role", "content", "tool_calls"}


class RewritesRequests(Router):
    def ask(self, shard, request, body):
        if body:
            content = orjson.loads(body)
            content["messages"] = [
                {key: message[key] for key in KNOWN & message.keys()} for message in content["messages"]
            ]
            body = orjson.dumps(content)
        return super().ask(shard, request, body)


main(RewritesRequests)
