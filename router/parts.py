"""The router's parts, each made from the configuration: what one says of another is decided here and nowhere else."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from .backends_file import read_backends
from .config import ConfigError, HealthMode, RouterConfig
from .dispatch import Limits
from .events import Journal
from .fleet import Fleet
from .health import Rules
from .intake import ListenerLimits
from .kv_scrape import INTERVAL_S as SCRAPE_INTERVAL_S
from .kv_scrape import KvScrape
from .limits import in_flight_limit, raise_file_limit
from .policies import POLICIES, PolicySettings
from .probes import MAX_PROBE_ANSWER, Monitor, ProbeSettings
from .transport import Pool
from .urls import Endpoint, parse_backend
from .wedges import WedgeWatch


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


def make_fleet(config: RouterConfig, random: Random) -> Fleet:
    """The backends, and the policy that chooses among them. Raises ConfigError when there is none."""
    return Fleet(
        endpoints_for(config),
        rules=rules_for(config),
        policy=POLICIES[config.policy](policy_settings(config), random),
        make_pool=_traffic_pool(config),
        clock=time.monotonic,
        trial_interval_s=config.probe_interval_s,
        unproven=config.health is HealthMode.PUSHED,
    )


def make_prefill(config: RouterConfig) -> Fleet | None:
    """The prefill servers, if there are any."""
    if not config.prefill_backends:
        return None
    return Fleet(
        map(parse_backend, config.prefill_backends),
        rules=rules_for(config),
        policy=POLICIES["least_outstanding"](policy_settings(config), Random()),  # noqa: S311  nothing secret
        make_pool=_traffic_pool(config),
        clock=time.monotonic,
        trial_interval_s=config.probe_interval_s,
    )


def _traffic_pool(config: RouterConfig) -> Callable[[Endpoint], Pool]:
    return partial(Pool, connect_timeout_s=config.connect_timeout_s, max_body=config.max_answer_mib << 20)


def _probe_pool(connect_timeout_s: float) -> Callable[[Endpoint], Pool]:
    return partial(Pool, connect_timeout_s=connect_timeout_s, max_body=MAX_PROBE_ANSWER, keep=False)


def dispatch_limits(config: RouterConfig) -> Limits:
    """How far the dispatcher goes for one request."""
    return Limits(
        max_attempts=config.max_attempts,
        no_shard_hold_s=config.no_shard_hold_s,
        poison_after=config.poison_after,
        max_answer=config.max_answer_mib << 20,
    )


def listener_limits(config: RouterConfig) -> ListenerLimits:
    """What clients may send and how long they may take. Raises the process's limit of open files as far as it goes."""
    return ListenerLimits(
        deadline_s=config.backend_timeout_s,
        max_body=config.max_body_mib << 20,
        max_head=config.max_header_kib << 10,
        client_idle_s=config.client_idle_s,
        max_in_flight=in_flight_limit(raise_file_limit(), config.max_in_flight),
    )


def make_monitor(config: RouterConfig, fleet: Fleet) -> Monitor:
    """Probes a fleet."""
    settings = ProbeSettings(config.probe_interval_s, config.probe_timeout_s, config.readmit)
    return Monitor(fleet, settings, _probe_pool(config.connect_timeout_s))


def make_wedge_watch(config: RouterConfig, fleet: Fleet, journal: Journal) -> WedgeWatch:
    """Finds a fleet's wedged engines."""
    # As long as any look may take: to the watch, a connection that is not made is a silence like any other.
    return WedgeWatch(fleet, config.stall_after_s, _probe_pool(config.stall_after_s), journal)


def make_kv_scrape(fleet: Fleet, journal: Journal) -> KvScrape:
    """Reads the KV usage of a fleet's engines."""
    return KvScrape(fleet, _probe_pool(SCRAPE_INTERVAL_S), journal)
