"""All probes of one router, in turns that do not disturb each other's measure."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...under_test import RouterError
from ..findings import Finding, Group
from . import affinity, cancellation, headers, load, paths, payload, restart
from .bench import Bench
from .results import Notes


@dataclass(frozen=True, slots=True)
class Probe:
    """What one group asks. `alone`: it measures what the machine's other work would spoil."""

    checks: Sequence[str]
    ask: Callable[[Bench, Notes], Awaitable[None]]
    within_s: float
    alone: bool = False


PROBES: Mapping[Group, Probe] = {
    Group.PAYLOAD: Probe(payload.CHECKS, payload.probe, 90.0),
    Group.HEADERS: Probe(headers.CHECKS, headers.probe, 90.0),
    Group.PATHS: Probe(paths.CHECKS, paths.probe, 90.0),
    Group.AFFINITY: Probe(affinity.CHECKS, affinity.probe, 120.0),
    Group.CANCELLATION: Probe(cancellation.CHECKS, cancellation.probe, 90.0),
    Group.LOAD: Probe(load.CHECKS, load.probe, 240.0, alone=True),
    Group.RESTART: Probe(restart.CHECKS, restart.probe, 240.0, alone=True),
}
_AT_ONCE = 2  # a router needs its share of the machine to start in time


async def probe(bench: Bench, groups: Iterable[Group] | None = None) -> list[Finding]:
    """Judge the router by the probes of these groups, or of all, in the order of the groups.

    Whatever the router does, this does not raise: what could not be judged is UNKNOWN, with the reason. A group that
    has no probes is a KeyError.
    """
    wanted = {group: PROBES[group] for group in (PROBES if groups is None else groups)}
    found: dict[Group, list[Finding]] = {}
    turn = asyncio.Semaphore(_AT_ONCE)

    async def take(group: Group, probe: Probe) -> None:
        async with turn:
            found[group] = await _judge(bench, group, probe)

    await asyncio.gather(*(take(group, probe) for group, probe in wanted.items() if not probe.alone))
    for group, one in wanted.items():
        if one.alone:
            found[group] = await _judge(bench, group, one)
    return [finding for group in Group if group in found for finding in found[group]]


async def _judge(bench: Bench, group: Group, probe: Probe) -> list[Finding]:
    notes = Notes(group, probe.checks)
    try:
        async with asyncio.timeout(probe.within_s):
            await probe.ask(bench, notes)
    except TimeoutError:
        return notes.close(f"the probe did not come to an end in {probe.within_s:g} s")
    except RouterError as error:
        return notes.close(str(error))
    except Exception as error:  # noqa: BLE001 - a broken probe is no verdict about the router
        return notes.close(f"the probe failed: {type(error).__name__}: {error}")
    return notes.close("the probe left this check out")
