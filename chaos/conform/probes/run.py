"""All probes of one router, in turns that do not disturb what each other measures."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from ...under_test import RouterError
from ..findings import Finding, Group
from . import affinity, cancellation, headers, load, paths, payload, restart
from .bench import Bench, SharedRig
from .results import Notes


class Turn(Enum):
    """When a group is asked, in this order; a turn's groups one after the other."""

    SHARED = auto()  # of the router that they share
    BESIDE = auto()  # of one of its own, at the same time
    ALONE = auto()  # when nothing else is done, which would spoil the measure


@dataclass(frozen=True, slots=True)
class Probe:
    """What one group asks, and how long all of it may last."""

    checks: Sequence[str]
    ask: Callable[[Bench, SharedRig, Notes], Awaitable[None]]
    within_s: float
    turn: Turn


# In the order in which they are asked: the last check of the paths may take a shard out for a while.
PROBES: Mapping[Group, Probe] = {
    Group.PAYLOAD: Probe(payload.CHECKS, payload.probe, 120.0, Turn.SHARED),
    Group.CANCELLATION: Probe(cancellation.CHECKS, cancellation.probe, 90.0, Turn.SHARED),
    Group.HEADERS: Probe(headers.CHECKS, headers.probe, 120.0, Turn.SHARED),
    Group.PATHS: Probe(paths.CHECKS, paths.probe, 90.0, Turn.SHARED),
    Group.AFFINITY: Probe(affinity.CHECKS, affinity.probe, 180.0, Turn.BESIDE),
    Group.LOAD: Probe(load.CHECKS, load.probe, 600.0, Turn.ALONE),
    Group.RESTART: Probe(restart.CHECKS, restart.probe, 300.0, Turn.ALONE),
}


async def probe(
    bench: Bench,
    groups: Iterable[Group] | None = None,
    heard: Callable[[Sequence[Finding]], None] = lambda _found: None,
) -> list[Finding]:
    """Judge the router by the probes of these groups, or of all; `heard` gets those of a group once they are there.

    Whatever the router does, this does not raise: what could not be judged is UNKNOWN, with the reason. A group that
    has no probes is a KeyError.
    """
    wanted = set(PROBES if groups is None else groups)
    if without := [group for group in wanted if group not in PROBES]:
        raise KeyError(f"no probes of {without[0]!r}; known: {', '.join(PROBES)}")
    found: dict[Group, list[Finding]] = {}
    async with SharedRig(bench, "shared") as shared:

        async def take(turn: Turn) -> None:
            for group, probe in PROBES.items():
                if group in wanted and probe.turn is turn:
                    found[group] = await _judge(bench, shared, group)
                    heard(found[group])

        await asyncio.gather(take(Turn.SHARED), take(Turn.BESIDE))
    await take(Turn.ALONE)
    return [finding for group in Group if group in found for finding in found[group]]


async def _judge(bench: Bench, shared: SharedRig, group: Group) -> list[Finding]:
    probe = PROBES[group]
    notes = Notes(group, probe.checks)
    try:
        async with asyncio.timeout(probe.within_s):
            await probe.ask(bench, shared, notes)
    except TimeoutError:
        return notes.close(f"the probe did not come to an end in {probe.within_s:g} s")
    except RouterError as error:
        return notes.close(str(error))
    except Exception as error:  # noqa: BLE001 - a broken probe is no verdict about the router
        return notes.close(f"the probe failed: {type(error).__name__}: {error}")
    return notes.close("the probe left this check out")
