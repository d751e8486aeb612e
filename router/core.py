"""The router as a whole: builds the parts from a configuration, starts them on sockets, drains and stops them.

Sockets are bound by the caller, synchronously (`bind`), so that a taken port is the caller's exception and not a
surprise on a thread that nobody watches.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from aiohttp import web

from .admin import admin_app, read_token
from .answers import Statuses
from .backends_file import read_backends, watch
from .config import ConfigError, HealthMode, RouterConfig
from .dispatch import Dispatcher, Limits
from .events import LOG, Journal
from .fleet import Fleet
from .health import Event, Rules, State
from .intake import ListenerLimits
from .kv_scrape import INTERVAL_S as SCRAPE_INTERVAL_S
from .kv_scrape import KvScrape
from .limits import in_flight_limit, raise_file_limit
from .listener import BACKLOG, Listener
from .metrics import RouterCollector, Tally
from .policies import POLICIES, PolicySettings, Pressure
from .probes import MAX_PROBE_ANSWER, Monitor, ProbeSettings
from .shard import Shard
from .transport import Pool
from .urls import Endpoint, authority, parse_backend
from .wedges import WedgeWatch

# What an answer may take to be sent once its deadline has passed.
DRAIN_GRACE_S = 5.0
WRONG_PORT = frozenset({errno.EADDRINUSE, errno.EACCES})


class BindError(OSError):
    """An address cannot be listened on; `key` is the setting that is to blame."""

    def __init__(self, number: int | None, message: str, key: str = "") -> None:
        super().__init__(number, message)  # its `args`, by which it is pickled
        self.key = key

    def __str__(self) -> str:
        return str(self.strerror)


def bind(host: str, port: int) -> socket.socket:
    """A bound and listening TCP socket. Raises BindError.

    The address is free again at once after a crash (SO_REUSEADDR), so a restarted router gets its port back.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _refused(host, port, error) from None
    return listener


def _refused(host: str, port: int, error: OSError) -> BindError:
    key = "port" if error.errno in WRONG_PORT else "host"
    right = "a free port, or 0 for any," if key == "port" else "an address of this machine"
    message = f"cannot listen on {authority(host, port)}: {error.strerror}; {right} would be right"
    return BindError(error.errno, message, key)


def bind_both(config: RouterConfig) -> tuple[socket.socket, socket.socket | None]:
    """The user port's socket and, if there is one, the admin port's. Raises BindError, and then holds neither."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(bind(config.host, config.port))
        admin = None
        if config.admin_port is not None:
            try:
                admin = stack.enter_context(bind(config.admin_host, config.admin_port))
            except BindError as error:
                error.key = f"admin_{error.key}"
                raise
        stack.pop_all()
    return listener, admin


def rules_for(config: RouterConfig) -> Rules:
    """How evidence is weighed in each health mode."""
    match config.health:
        case HealthMode.SELF:
            return Rules(eject_after=config.eject_after, readmit=config.readmit)
        case HealthMode.PUSHED:
            return Rules(eject_after=None, readmit=config.readmit, monitored=False)
        case HealthMode.OFF:
            return Rules(eject_after=None, frozen=True, monitored=False)


def endpoints_for(config: RouterConfig) -> list[Endpoint]:
    """The members at the start. Raises ConfigError when there is none."""
    endpoints = {endpoint.key: endpoint for endpoint in map(parse_backend, config.backends)}
    if config.backends_file is not None:
        if endpoints:
            why = "excludes backends: the file is the whole set; one of the two would be right"
            raise ConfigError(why, "backends_file")
        endpoints = {endpoint.key: endpoint for endpoint in read_backends(config.backends_file)}
    if not endpoints:
        raise ConfigError("no backend: give --backend URL, or a --backends-file that names one")
    return list(endpoints.values())


def policy_settings(config: RouterConfig) -> PolicySettings:
    """What the policy is told."""
    return PolicySettings(config.session_entries, config.session_ttl_s, config.kv_capacity_tokens)


def open_journal(path: Path | None) -> Journal:
    """The event log. Raises ConfigError."""
    try:
        return Journal(path)
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror}; a file in a folder that exists would be right"
        raise ConfigError(why, "event_log") from None


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
        make_pool = partial(Pool, connect_timeout_s=config.connect_timeout_s, max_body=config.max_answer_mib << 20)
        self.fleet = Fleet(
            endpoints_for(config),
            rules=rules_for(config),
            policy=POLICIES[config.policy](policy_settings(config), random or Random()),  # noqa: S311  nothing secret
            make_pool=make_pool,
            clock=time.monotonic,
            trial_interval_s=config.probe_interval_s,
            unproven=config.health is HealthMode.PUSHED,
        )
        self.prefill = None
        if config.prefill_backends:
            self.prefill = Fleet(
                map(parse_backend, config.prefill_backends),
                rules=rules_for(config),
                policy=POLICIES["least_outstanding"](policy_settings(config), Random()),  # noqa: S311  nothing secret
                make_pool=make_pool,
                clock=time.monotonic,
                trial_interval_s=config.probe_interval_s,
            )
        self._fleets = [self.fleet] if self.prefill is None else [self.fleet, self.prefill]
        for fleet in self._fleets:
            fleet.on_change = self._state_changed
        self._dispatcher = Dispatcher(
            self.fleet,
            limits=Limits(
                max_attempts=config.max_attempts,
                no_shard_hold_s=config.no_shard_hold_s,
                poison_after=config.poison_after,
                max_answer=config.max_answer_mib << 20,
            ),
            statuses=Statuses(config.backend_failure_status, config.no_healthy_backend_status),
            journal=self.journal,
            tally=self.tally,
            prefill=self.prefill,
        )
        self.listener = Listener(self._dispatcher, self._listener_limits(), self.tally)
        self._admin: web.AppRunner | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.pushes = 0  # full sets received: a controller that finds 0 after a restart has to push again

    def _listener_limits(self) -> ListenerLimits:
        config = self.config
        return ListenerLimits(
            deadline_s=config.backend_timeout_s,
            max_body=config.max_body_mib << 20,
            max_head=config.max_header_kib << 10,
            client_idle_s=config.client_idle_s,
            max_in_flight=in_flight_limit(raise_file_limit(), config.max_in_flight),
        )

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
                self._in_background(self._monitor(fleet).run(), "monitor")
            if self.config.health is not HealthMode.OFF and self.config.stall_after_s:
                self._in_background(self._wedge_watch(fleet).run(), "progress watch")
        if self.fleet.reads_metrics:
            self._in_background(self._kv_scrape().run(), "KV scrape")
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

    def _monitor(self, fleet: Fleet) -> Monitor:
        config = self.config
        settings = ProbeSettings(config.probe_interval_s, config.probe_timeout_s, config.readmit)
        make_pool = partial(Pool, connect_timeout_s=config.connect_timeout_s, max_body=MAX_PROBE_ANSWER, keep=False)
        return Monitor(fleet, settings, make_pool)

    def _wedge_watch(self, fleet: Fleet) -> WedgeWatch:
        stall_after_s = self.config.stall_after_s
        # As long as any look may take: to the watch, a connection that is not made is a silence like any other.
        make_pool = partial(Pool, connect_timeout_s=stall_after_s, max_body=MAX_PROBE_ANSWER, keep=False)
        return WedgeWatch(fleet, stall_after_s, make_pool, self.journal)

    def _kv_scrape(self) -> KvScrape:
        make_pool = partial(Pool, connect_timeout_s=SCRAPE_INTERVAL_S, max_body=MAX_PROBE_ANSWER, keep=False)
        return KvScrape(self.fleet, make_pool, self.journal)

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
