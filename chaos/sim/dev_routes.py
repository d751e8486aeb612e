"""The routes by which a trainer holds an engine still: vLLM has them in development mode only."""

import orjson

from .engine_client import EngineClient
from .http import Exchange, Handler, Request
from .requests import parse_level, parse_mode


class DevRoutes:
    """Pause and sleep. `sleep_level` is that of the last `/sleep`, None while the engine is awake."""

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self.sleep_level: int | None = None

    def routes(self) -> dict[str, dict[str, Handler]]:
        """Their handlers, by path and method."""
        return {
            "/pause": {"POST": self._pause},
            "/resume": {"POST": self._resume},
            "/is_paused": {"GET": self._is_paused},
            "/sleep": {"POST": self._sleep},
            "/wake_up": {"POST": self._wake_up},
            "/is_sleeping": {"GET": self._is_sleeping},
        }

    async def _pause(self, request: Request, exchange: Exchange) -> None:
        await self._engine.ask("pause", mode=parse_mode(request.query))
        exchange.reply(200, orjson.dumps({"status": "paused"}))

    async def _resume(self, _request: Request, exchange: Exchange) -> None:
        await self._engine.ask("resume")
        exchange.reply(200, orjson.dumps({"status": "resumed"}))

    async def _is_paused(self, _request: Request, exchange: Exchange) -> None:
        exchange.reply(200, orjson.dumps({"is_paused": await self._engine.ask("is_paused")}))

    async def _sleep(self, request: Request, exchange: Exchange) -> None:
        level = parse_level(request.query)
        await self._engine.ask("pause", mode=parse_mode(request.query))
        self.sleep_level = level
        exchange.reply(200, orjson.dumps({"status": "sleeping", "level": level}))

    async def _wake_up(self, _request: Request, exchange: Exchange) -> None:
        await self._engine.ask("resume")
        self.sleep_level = None
        exchange.reply(200, orjson.dumps({"status": "awake", "tags": None}))

    async def _is_sleeping(self, _request: Request, exchange: Exchange) -> None:
        # vLLM's engine calls any pause sleep here.
        exchange.reply(200, orjson.dumps({"is_sleeping": await self._engine.ask("is_paused")}))
