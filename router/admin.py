"""The second port: health, readiness and metrics for anyone, and changes of state for who has the token."""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import orjson
from aiohttp import web
from multidict import CIMultiDict

from .answers import refusal
from .config import ConfigError
from .metrics import RouterCollector, exposition
from .policies import Pressure
from .shard import Shard
from .urls import BadBackendUrlError, shown

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
REASONS: Mapping[int, str] = {
    401: "unauthorized",
    403: "no_admin_token",
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    422: "bad_request",
}


class Controlled(Protocol):
    """What the admin port may ask of the router."""

    def is_ready(self) -> bool:
        """Whether user traffic would be served now."""

    def pressure(self) -> Pressure:
        """How full the engines' caches are."""

    def shards(self) -> list[Shard]:
        """The members."""

    def set_members(self, urls: list[str]) -> None:
        """Replace the membership. Raises BadBackendUrlError."""

    def knows(self, url: str) -> bool:
        """Whether it is the URL of a member."""

    def set_serving(self, urls: list[str]) -> list[str]:
        """Replace the set that serves; the unknown URLs."""

    def announce_pause(self) -> None:
        """The engines are being paused."""

    def announce_resume(self) -> None:
        """They generate again."""

    def report_refit(self, url: str) -> bool:
        """The shard holds current weights. Whether it is known."""

    def report_restart(self, url: str) -> bool:
        """The shard is being restarted. Whether it is known."""


def read_token(path: Path) -> str:
    """The token in a file. Raises ConfigError for a file that cannot be read or is empty."""
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}", "admin_token_file") from None
    if not token:
        raise ConfigError(f"{path}: holds no token; one line with it would be right", "admin_token_file")
    return token


def describe(shard: Shard) -> dict[str, Any]:
    """A member as JSON."""
    return {
        "url": shard.url,
        "state": shard.record.state.value,
        "strikes": len(shard.record.strikes),
        "in_flight": shard.in_flight,
        "connections": shard.pool.connections,
    }


def admin_app(router: Controlled, collector: RouterCollector, token: str | None) -> web.Application:
    """The admin port's application."""
    app = web.Application(middlewares=[json_errors])
    calls = {
        "/backends": _set_members(router),
        "/serving": _set_serving(router),
        "/pause": _announce(router.announce_pause, {"paused": True}),
        "/resume": _announce(router.announce_resume, {"paused": False}),
        "/refit": _report(router.report_refit),
        "/restarting": _report(router.report_restart),
    }
    app.router.add_get("/health", _health)
    app.router.add_get("/ready", _ready(router))
    app.router.add_get("/metrics", _metrics(collector))
    app.router.add_get("/backends", _members(router))
    for path, handler in calls.items():
        app.router.add_post(path, _guarded(handler, token))
    return app


@web.middleware
async def json_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors of aiohttp's, and of the calls, as JSON."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        allow = error.headers.get("Allow")
        return _error(error.status, error.reason, () if allow is None else (("Allow", allow),))
    except (BadBackendUrlError, ConfigError) as error:
        return _error(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))


def _error(status: int, message: str, extra: tuple[tuple[str, str], ...] = ()) -> web.Response:
    answer = refusal(status, REASONS.get(status, "admin_error"), message, extra)
    return web.Response(status=status, headers=CIMultiDict(answer.headers), body=answer.body)


def _json(document: Mapping[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(document), status=status, content_type="application/json")


def _guarded(handler: Handler, token: str | None) -> Handler:
    async def checked(request: web.Request) -> web.StreamResponse:
        if token is None:
            return _error(HTTPStatus.FORBIDDEN, "calls that change state need --admin-token-file")
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), token.encode())
        if scheme.lower() != "bearer" or not same:
            return _error(HTTPStatus.UNAUTHORIZED, "Authorization: Bearer TOKEN is missing or wrong")
        return await handler(request)

    return checked


async def _health(_request: web.Request) -> web.StreamResponse:
    return _json({"status": "ok"})


def _ready(router: Controlled) -> Handler:
    async def ready(_request: web.Request) -> web.StreamResponse:
        serving = [shard.url for shard in router.shards() if shard.record.serving]
        status = HTTPStatus.OK if router.is_ready() else HTTPStatus.SERVICE_UNAVAILABLE
        pressure = asdict(router.pressure())
        return _json({"ready": router.is_ready(), "serving": serving, "kv_cache": pressure}, status)

    return ready


def _metrics(collector: RouterCollector) -> Handler:
    async def metrics(_request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=exposition(collector), headers=headers)

    return metrics


def _members(router: Controlled) -> Handler:
    async def members(_request: web.Request) -> web.StreamResponse:
        return _json({"backends": [describe(shard) for shard in router.shards()]})

    return members


async def _document(request: web.Request, key: str, kind: type) -> Any:
    try:
        value = orjson.loads(await request.read())[key]
    except (ValueError, LookupError, TypeError):
        value = None
    if not isinstance(value, kind):
        raise ConfigError(f'the body must be a JSON object with "{key}"')
    return value


async def _urls(request: web.Request) -> list[str]:
    urls = await _document(request, "urls", list)
    if not all(isinstance(url, str) for url in urls):
        raise ConfigError('"urls" must be a list of strings')
    return list(urls)


def _set_members(router: Controlled) -> Handler:
    async def set_members(request: web.Request) -> web.StreamResponse:
        urls = await _urls(request)
        if not urls:
            raise ConfigError('"urls" must name a backend; an empty list to /serving is what stops all serving')
        router.set_members(urls)
        return _json({"backends": [describe(shard) for shard in router.shards()]})

    return set_members


def _set_serving(router: Controlled) -> Handler:
    async def set_serving(request: web.Request) -> web.StreamResponse:
        urls = await _urls(request)
        if urls and not any(map(router.knows, urls)):
            raise ConfigError(f"none of these is a backend, so nothing is changed: {shown(urls)}")
        unknown = router.set_serving(urls)
        return _json({"unknown": unknown, "backends": [describe(shard) for shard in router.shards()]})

    return set_serving


def _announce(tell: Callable[[], None], now: Mapping[str, bool]) -> Handler:
    async def announce(_request: web.Request) -> web.StreamResponse:
        tell()
        return _json(now)

    return announce


def _report(tell: Callable[[str], bool]) -> Handler:
    async def report(request: web.Request) -> web.StreamResponse:
        url = await _document(request, "url", str)
        if not tell(url):
            return _error(HTTPStatus.NOT_FOUND, f"{url!r} is not a backend")
        return _json({"url": url})

    return report
