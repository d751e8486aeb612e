"""A small router that passes everything on as it is. Each one in `flawed.py` does one thing of it differently."""

import argparse
import asyncio
import hashlib
import itertools
import signal
from pathlib import Path

import aiohttp
import orjson
from aiohttp import web

PATHS = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/models", "/tokenize"}
HOP_BY_HOP = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "upgrade"),
    *("transfer-encoding", "host", "content-length", "expect"),
}
PASSED_BACK = ("Content-Type", "X-Request-Id")
SERVER_ERROR = 500


class Faithful:
    paths = PATHS
    cancels = True
    max_body = 1 << 26

    def __init__(self, backends, session):
        self.backends = backends
        self.session = session
        self.turn = itertools.count()

    async def handle(self, request):
        if request.path not in self.paths:
            return self.error(404, "no such path")
        body = self.request_body(await request.read())
        for shard in self.order(request.headers.get("X-Session-ID", "")):
            try:
                answer = await self.attempt(shard, request, body)
            except (aiohttp.ClientError, OSError):
                continue
            if not self.again(answer.status):
                return answer
        return self.error(self.nobody, "no shard")

    nobody = 409

    def order(self, key):
        """Shards in the order in which they are tried: by rendezvous hashing of the session, or in turn."""
        if key:
            return sorted(self.backends, key=lambda url: hashlib.sha256(f"{key} {url}".encode()).digest())
        first = next(self.turn) % len(self.backends)
        return self.backends[first:] + self.backends[:first]

    def again(self, status):
        return status >= SERVER_ERROR

    async def attempt(self, shard, request, body):
        headers = self.request_headers(request.headers)
        skipped = ("Content-Type", "User-Agent", "Accept", "Accept-Encoding")
        async with self.session.request(
            request.method,
            shard + request.raw_path,
            data=body,
            headers=headers,
            skip_auto_headers=skipped,
            allow_redirects=False,
        ) as upstream:
            if upstream.content_type == "text/event-stream":
                return await self.relay(request, upstream)
            payload = self.answer_body(await upstream.read())
            return web.Response(status=upstream.status, body=payload, headers=self.answer_headers(upstream.headers))

    async def relay(self, request, upstream):
        response = web.StreamResponse(status=upstream.status, headers=self.answer_headers(upstream.headers))
        await response.prepare(request)
        async for piece in upstream.content.iter_any():
            await response.write(piece)
        await response.write_eof()
        return response

    def request_headers(self, headers):
        named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
        return [(name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP | named]

    def answer_headers(self, headers):
        return {name: headers[name] for name in PASSED_BACK if name in headers}

    def request_body(self, body):
        return body

    def answer_body(self, body):
        return body

    def error(self, status, why):
        content = {"error": {"message": why, "type": "router_error", "code": why, "param": None}}
        return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")


async def serve(kind, options):
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        router = kind(options.backends_file.read_text().split(), session)
        app = web.Application(client_max_size=kind.max_body)
        app.router.add_route("*", "/{path:.*}", router.handle)
        runner = web.AppRunner(app, handler_cancellation=kind.cancels, access_log=None, shutdown_timeout=10.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", options.port, reuse_address=True, backlog=2048).start()
            await ended.wait()
        finally:
            await runner.cleanup()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", nargs="?", default="Faithful")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--backends-file", type=Path, required=True)
    return parser.parse_args()
