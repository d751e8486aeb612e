"""Routers with one flaw each; the first argument names the class."""

import asyncio
import os
import random
import signal

import faithful
import orjson
from aiohttp import web
from faithful import PATHS, Faithful


class WritesAnew(Faithful):
    def request_body(self, body):
        return orjson.dumps(orjson.loads(body)) if b"x_big" not in body and body else body


class DropsTokenIds(Faithful):
    def request_body(self, body):
        return body.replace(b'"prompt_token_ids": [1, 15043], ', b"")


class RoundsLogprobs(Faithful):
    def answer_body(self, body):
        return body.replace(b"-0.12345678901234568", b"-0.12345679")


class DropsHeaders(Faithful):
    def request_headers(self, headers):
        return {"Content-Type": headers["Content-Type"]} if "Content-Type" in headers else {}


class PassesHopByHop(Faithful):
    def request_headers(self, headers):
        framing = {"content-length", "transfer-encoding", "host", "expect", "connection"}
        return [(name, value) for name, value in headers.items() if name.lower() not in framing]


class PassesAllPaths(Faithful):
    async def handle(self, request):
        self.paths = {request.path}
        return await super().handle(request)


class HasNoTokenize(Faithful):
    paths = PATHS - {"/tokenize"}


class AnswersPlain(Faithful):
    def error(self, status, why):
        return web.Response(status=status, text=why)


class AsksOnce(Faithful):
    def again(self, _status):
        return False


class AsksAgain(Faithful):
    def again(self, status):
        return status in (400, 404, 422) or super().again(status)

    nobody = 400


class ForgetsSessions(Faithful):
    def order(self, _key):
        return random.sample(self.backends, len(self.backends))


class CountsShards(Faithful):
    """Takes the hash of a session modulo the number of shards that are left."""

    def __init__(self, backends, session):
        super().__init__(backends, session)
        self.left = list(backends)

    async def attempt(self, shard, request, body):
        try:
            answer = await super().attempt(shard, request, body)
        except OSError:
            self.left = [url for url in self.left if url != shard] or self.backends
            raise
        return answer

    def order(self, key):
        first = sum(key.encode()) % len(self.left) if key else next(self.turn) % len(self.left)
        return [*self.left[first:], *self.left[:first]]


class UsesOneShard(Faithful):
    def order(self, key):
        return super().order(key) if key else self.backends


class NeverCancels(Faithful):
    cancels = False


class LeavesAtOnce(Faithful):
    def __init__(self, backends, session):
        super().__init__(backends, session)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os._exit, 1)


class IsBusyAtFirst(Faithful):
    nobody = 503


class TakesSmallBodies(Faithful):
    max_body = 1 << 20


class Hangs(Faithful):
    async def handle(self, request):
        if b"=ready]" not in await request.read() and request.method == "POST":
            await asyncio.Event().wait()
        return await super().handle(request)


if __name__ == "__main__":
    options = faithful.parse()
    asyncio.run(faithful.serve(globals()[options.kind], options))
