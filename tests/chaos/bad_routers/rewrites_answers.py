"""Parses answers and writes them out again in its own words."""

import orjson
from base import Router, main


class RewritesAnswers(Router):
    def answer(self, status, payload):
        return super().answer(status, orjson.dumps(orjson.loads(payload) | {"routed_by": "me"}))


main(RewritesAnswers)
