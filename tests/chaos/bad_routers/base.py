"""A small correct router. Each bad router beside this file does one thing of it differently.

It reads answers whole and checks them, tries another shard inside a request, ejects a shard at the first failure, takes
it back when a small generation works again, keeps one deadline over everything, and cancels what nobody waits for.
With prefill shards each attempt at a generation has two legs.
"""

import argparse
import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson
from aiohttp import web

PROBE = orjson.dumps({"messages": [{"role": "user", "content": "ping"}], "max_tokens": 1})
CHAT = "/v1/chat/completions"
PARAMS = "kv_transfer_params"
FOR_DECODE = {"max_tokens": 1, PARAMS: {"do_remote_decode": True, "do_remote_prefill": False}}


@dataclass(eq=False)
class Shard:
    url: str
    serving: bool = True
    in_flight: int = 0


class Failed(Exception):  # noqa: N818
    """An attempt came to nothing. `status` is the upstream's, 0 if it had none."""

    def __init__(self, why, *, status=0, delivered=True, blame=True):
        super().__init__(why)
        self.status, self.delivered, self.blame = status, delivered, blame


class Router:
    failed_status = 500
    late_status = 500
    nobody_status = 409
    max_attempts = 2
    prefill = ()

    def __init__(self, backends, deadline_s, session):
        self.shards = [Shard(url) for url in backends]
        self.deadline_s = deadline_s
        self.session = session

    async def handle(self, request):
        """Answer one request, within the deadline."""
        body = await request.read()
        try:
            async with asyncio.timeout(self.deadline_s):
                return await self.route(request, body)
        except TimeoutError:
            self.eject(request["shard"])
            return self.error(self.late_status, "deadline")

    async def route(self, request, body):
        """Try shards until one answers or the attempts are used up."""
        tried, deliveries = [], 0
        while deliveries < self.max_attempts and (shard := self.pick(tried)):
            tried.append(shard)
            request["shard"] = shard
            try:
                return await self.attempt(shard, request, body)
            except Failed as failure:
                deliveries += failure.delivered
                self.on_failure(shard, failure)
        return self.error(self.failed_status, "failed") if tried else self.error(self.nobody_status, "no shard")

    def pick(self, tried):
        """The least busy shard that serves and was not tried yet, or None."""
        candidates = [shard for shard in self.shards if shard.serving and shard not in tried]
        return min(candidates, key=lambda shard: shard.in_flight, default=None)

    async def attempt(self, shard, request, body):
        """Ask one shard, once a prefill shard has done its half, and answer with what it said. Raises Failed."""
        if self.prefill and request.path == CHAT and (params := await self.prepare(request, body)):
            body = appended(body, {PARAMS: params})
        request["shard"] = shard
        return await self.exchange(shard, request, body)

    async def prepare(self, request, body):
        """What a prefill shard has for a decode shard; None if none serves. Raises Failed."""
        request["id"] = os.urandom(8).hex()
        serving = [shard for shard in self.prefill if shard.serving]
        if not serving:
            return None
        request["shard"] = shard = min(serving, key=lambda shard: shard.in_flight)
        try:
            answer = await self.exchange(shard, request, appended(body, FOR_DECODE))
        except Failed as failure:
            self.on_failure(shard, failure)
            raise Failed("prefill", blame=False) from failure
        return orjson.loads(answer.body).get(PARAMS)

    async def exchange(self, shard, request, body):
        """Ask one shard and answer with what it said. Raises Failed."""
        shard.in_flight += 1
        try:
            async with self.ask(shard, request, body) as upstream:
                return await self.relay(request, upstream)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Failed(str(error), delivered=False) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Failed(str(error)) from error
        finally:
            shard.in_flight -= 1

    def ask(self, shard, request, body):
        """Send the request on."""
        headers = {"Content-Type": "application/json", "X-Request-Id": request.get("id", "")}
        return self.session.request(
            request.method, shard.url + request.path_qs, data=body, headers=headers, allow_redirects=False
        )

    async def relay(self, request, upstream):
        """Read the answer whole, check it, and answer with it."""
        payload = await upstream.read()
        self.check(request.path, upstream.status, payload)
        return self.answer(upstream.status, payload)

    def check(self, path, status, payload):
        """Raise Failed for an answer that no client should see."""
        if status in (429, 503):
            raise Failed("busy", status=status, blame=False)
        if status not in range(400, 500) and status != 200:
            raise Failed("bad status", status=status)
        if status != 200:
            return
        try:
            content = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            raise Failed("not JSON", status=status) from error
        if "error" in content or (path == CHAT and not content.get("choices")):
            raise Failed("no answer", status=status)
        if path == CHAT and content["choices"][0].get("finish_reason") == "abort":
            raise Failed("aborted", status=status, blame=False)

    def answer(self, status, payload):
        return web.Response(status=status, body=payload, content_type="application/json")

    def error(self, status, why):
        content = {"error": {"message": why, "type": "router_error", "code": why, "param": None}}
        return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")

    def on_failure(self, shard, failure):
        if failure.blame:
            self.eject(shard)

    def eject(self, shard):
        shard.serving = False

    async def readmit(self):
        """Try ejected shards again and again."""
        while True:
            await asyncio.sleep(0.1)
            await asyncio.gather(*(self.probe(shard) for shard in (*self.shards, *self.prefill) if not shard.serving))

    async def probe(self, shard):
        """Take a shard back if a small generation works."""
        try:
            async with (
                asyncio.timeout(0.5),
                self.session.post(shard.url + CHAT, data=PROBE, headers={"Content-Type": "application/json"}) as answer,
            ):
                self.check(CHAT, answer.status, await answer.read())
                shard.serving = answer.status == 200
        except (Failed, TimeoutError, OSError, aiohttp.ClientError):
            return


def appended(body, members):
    return body[:-1] + b"," + orjson.dumps(members)[1:]


async def serve(kind, options):
    backends = options.backends_file.read_text().split()
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=0.5)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        router = kind(backends, options.deadline_s, session)
        router.prefill = [Shard(url) for url in options.prefill]
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", router.handle)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", options.port, reuse_address=True).start()
            await router.readmit()
        finally:
            await runner.cleanup()


def main(kind=Router):
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--backends-file", type=Path, required=True)
    parser.add_argument("--deadline-s", type=float, required=True)
    parser.add_argument("--prefill", action="append", default=[])
    asyncio.run(serve(kind, parser.parse_args()))


if __name__ == "__main__":
    main()
