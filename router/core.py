"""The router as a whole: puts its parts together, starts them on sockets, drains and stops them."""

import asyncio
import logging
import socket
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any

from aiohttp import web

from .admin import admin_app, read_token
from .answers import Statuses
from .backends_file import watch
from .config import HealthMode, RouterConfig
from .dispatch import Dispatcher
from .events import LOG
from .health import Event, State
from .listener import Listener
from .metrics import RouterCollector, Tally
from .parts import (
    dispatch_limits,
    listener_limits,
    make_fleet,
    make_kv_scrape,
    make_monitor,
    make_prefill,
    make_wedge_watch,
    open_journal,
)
from .policies import Pressure
from .shard import Shard
from .urls import Endpoint, parse_backend

# What an answer may take to be sent once its deadline has passed.
DRAIN_GRACE_S = 5.0


def _tell_of_its_death(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        LOG.error("%s has died and does its work no more", task.get_name(), exc_info=error)


class Router:
    """One router. Everything but `start` and `stop` is synchronous and belongs to the thread of its event loop."""

    def __init__(self, config: RouterConfig, random: Random | None = None) -> None:
        self.config = config
        self._token = None if config.admin_token_file is None else read_token(config.admin_token_file)
        self.journal = open_journal(config.event_log)
        self.tally = Tally()
        self.fleet = make_fleet(config, random or Random())  # noqa: S311  nothing secret
        self.prefill = make_prefill(config)
        self._fleets = [self.fleet] if self.prefill is None else [self.fleet, self.prefill]
        for fleet in self._fleets:
            fleet.on_change = self._state_changed
        dispatcher = Dispatcher(
            self.fleet,
            limits=dispatch_limits(config),
            statuses=Statuses(config.backend_failure_status, config.no_healthy_backend_status),
            journal=self.journal,
            tally=self.tally,
            prefill=self.prefill,
        )
        self.listener = Listener(dispatcher, listener_limits(config), self.tally)
        self._admin: web.AppRunner | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.pushes = 0  # full sets received: a controller that finds 0 after a restart has to push again

    # Life

    async def start(self, listener: socket.socket, admin: socket.socket | None = None) -> None:
        """Serve on bound sockets, which are the router's from here on."""
        await self.listener.start(listener)
        if admin is not None:
            app = admin_app(self, RouterCollector(self.fleet, self.tally, self.prefill), self._token)
            self._admin = web.AppRunner(app, access_log=None)
            await self._admin.setup()
            await web.SockSite(self._admin, admin).start()
        for fleet in self._fleets:
            if self.config.health is HealthMode.SELF:
                self._in_background(make_monitor(self.config, fleet).run(), "monitor")
            if self.config.health is not HealthMode.OFF and self.config.stall_after_s:
                self._in_background(make_wedge_watch(self.config, fleet, self.journal).run(), "progress watch")
        if self.fleet.reads_metrics:
            self._in_background(make_kv_scrape(self.fleet, self.journal).run(), "KV scrape")
        if self.config.health is HealthMode.PUSHED and not self.pushes:
            self.fleet.awaits_push = True
            self._in_background(self._expect_push(), "first push")
        if self.config.backends_file is not None:
            watcher = watch(self.config.backends_file, self._replace_members)
            self._in_background(watcher, "backends file")
        self.journal.write("start", {"config": self.config.model_dump(mode="json")})

    async def stop(self, *, drain: bool = True) -> bool:
        """Stop accepting, give every request in flight its answer, then close everything.

        Without `drain`, requests in flight are cut off. Returns False if some had to be.
        """
        clean = await self.listener.stop(self.config.backend_timeout_s + DRAIN_GRACE_S if drain else 0.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._admin is not None:
            await self._admin.cleanup()
        for fleet in self._fleets:
            fleet.close()
        await asyncio.sleep(0)  # the dropped connections see their end
        self.journal.write("stop", {"clean": clean})
        self.journal.close()
        return clean

    def _in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_tell_of_its_death)
        self._tasks.append(task)

    async def _expect_push(self) -> None:
        within_s = self.config.first_push_within_s
        await asyncio.sleep(within_s)
        if not self.pushes:
            why = "no controller has said who serves: every backend does, until one says so"
            LOG.warning(why, extra={"fields": {"first_push_within_s": within_s}})
            self.journal.write("no_push", {"within_s": within_s, "why": why})
            self.fleet.serve_unvouched()

    # What a controller and the admin port may ask

    def is_ready(self) -> bool:
        """Whether user traffic would be served now."""
        return self.fleet.serving and not self.listener.draining

    def pressure(self) -> Pressure:
        """How full the engines' caches are."""
        return self.fleet.pressure

    def shards(self) -> list[Shard]:
        """The members, RETIRED ones included."""
        return list(self.fleet.shards)

    def set_members(self, urls: list[str]) -> None:
        """Replace the membership by the full set `urls`. Raises BadBackendUrlError."""
        self._replace_members([parse_backend(url) for url in urls])

    def knows(self, url: str) -> bool:
        """Whether it is the URL of a member, in whatever spelling."""
        return self.fleet.find(url) is not None

    def set_serving(self, urls: list[str]) -> list[str]:
        """Replace the set of members that serve; the URLs that are no member, which change nothing."""
        self.pushes += 1
        unknown = self.fleet.set_serving(urls)
        self.journal.write("membership", {"serving": list(urls), "unknown": unknown})
        for url in unknown:
            LOG.warning("unknown backend is ignored", extra={"fields": {"shard": url}})
        return unknown

    def report_refit(self, url: str) -> bool:
        """The shard holds the current weights: it may serve again. False for an unknown one."""
        return self._tell(url, Event.REFITTED, "refit reported")

    def report_restart(self, url: str) -> bool:
        """The shard's processes are being started again: it serves no more until it is refitted or proved."""
        return self._tell(url, Event.RESTARTED, "restart reported")

    def announce_pause(self) -> None:
        """The engines are being paused, for a weight update: they will not answer, and are not to blame."""
        self._set_paused(paused=True)

    def announce_resume(self) -> None:
        """They answer again."""
        self._set_paused(paused=False)

    def _set_paused(self, *, paused: bool) -> None:
        if paused is not self.fleet.paused:
            for fleet in self._fleets:
                fleet.set_paused(paused=paused)
            LOG.info("pause announced" if paused else "resume announced")
            self.journal.write("pause" if paused else "resume", {})

    def _replace_members(self, endpoints: Sequence[Endpoint]) -> None:
        self.fleet.set_members(endpoints)
        self.journal.write("membership", {"members": [endpoint.url for endpoint in endpoints]})

    def _tell(self, url: str, event: Event, why: str) -> bool:
        shard = self.fleet.find(url)
        if shard is not None:
            self.fleet.observe(shard, event, why)
        return shard is not None

    def _state_changed(self, shard: Shard, before: State, after: State, why: str) -> None:
        fields = {"shard": shard.url, "from": before.value, "to": after.value, "why": why}
        LOG.log(logging.INFO if after is State.HEALTHY else logging.WARNING, "shard state", extra={"fields": fields})
        self.journal.write("state", fields)
