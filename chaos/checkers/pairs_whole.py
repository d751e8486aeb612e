"""Prefill and decode legs make whole pairs: a decode leg has the parameters of its own prefill leg, for the only time.

What a decode server fetches with anything else is another prompt's KV cache, or memory that was given to somebody else.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ..faults.base import Layer
from ..history import Delivery, History, Lease, Served
from .base import Verdict, passed, unknown, unless
from .evidence import faults_on


def check(history: History) -> Verdict:
    """Join both legs by their transfer; a lease that nobody came for may run out."""
    prefills = {one.transfer: one for one in history.served if one.leg == "prefill" and one.lease is not Lease.NONE}
    decodes: defaultdict[str, list[Served]] = defaultdict(list)
    for one in sorted(history.served, key=lambda served: served.started):
        if one.leg == "decode":
            decodes[one.transfer].append(one)
    if not history.limits.prefill and not decodes:
        return passed("the fleet has no prefill servers")
    if not any(one.leg for one in history.served):
        return unknown("no shard was asked for one leg of two")
    offences = [*_halves(prefills, decodes), *_reused(decodes), *_left(history, prefills, decodes)]
    held = f"{len(decodes)} pairs were whole; {len(prefills)} prefill legs had left something for one"
    return unless(offences, "broken pairs", held=held)


def _halves(prefills: Mapping[str, Served], decodes: Mapping[str, Sequence[Served]]) -> Iterator[str]:
    """Decode legs whose prefill leg is not there, is another request's, or is no longer or not yet of any use."""
    for transfer, legs in decodes.items():
        first = prefills.get(transfer)
        for leg in legs:
            if first is None:
                yield f"{_show(leg)}: no prefill leg has left anything as {transfer!r}"
            elif (first.call, first.path) != (leg.call, leg.path):
                yield f"{_show(leg)}: the parameters are those of {first.call} {first.path}"
            elif first.request_id != leg.request_id or not leg.request_id:
                yield f"{_show(leg)}: X-Request-Id {leg.request_id!r}, {first.request_id!r} on its prefill leg"
            elif first.lease is Lease.EXPIRED:
                yield f"{_show(leg)}: it came when the lease of {transfer!r} had run out"


def _reused(decodes: Mapping[str, Sequence[Served]]) -> Iterator[str]:
    for transfer, legs in decodes.items():
        if len(legs) > 1:
            yield f"{_show(legs[1])}: {transfer!r} had reached shard {legs[0].shard} before"


def _left(history: History, prefills: Mapping[str, Served], decodes: Mapping[str, Sequence[Served]]) -> Iterator[str]:
    """Blocks that are kept although a decode server that lived knew of them."""
    for transfer, first in prefills.items():
        if first.lease is Lease.PINNED and any(_lived(history, leg) for leg in decodes.get(transfer, ())):
            yield f"{_show(first)}: {transfer!r} is still kept after its decode leg"


def _lived(history: History, leg: Served) -> bool:
    windows = faults_on(history, leg.shard, leg.started, leg.ended)
    return leg.ending is not Delivery.RUNNING and not any(window.layer == Layer.PROCESS for window in windows)


def _show(leg: Served) -> str:
    return f"{leg.call} {leg.path}: {leg.leg} leg on shard {leg.shard}"
