"""Affinity: a session stays on its shard, whose KV cache has its prefix; a death moves the dead shard's sessions only.

Nothing here loses an answer by itself, so what falls short is BOUNDED; an answer that a client must not get is UNSAFE.
"""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from ...asking import MODEL, post
from ...tags import tag
from ..findings import Group, Word
from ..flaws import FAIL_OVER, READMIT
from .backends import NAMES, Backend, ok, plain
from .bench import BACK_WITHIN_S, Bench, Reply, Rig, SharedRig, tally, until_used
from .results import Notes, Result, safe

_SHARDS, _KEYS, _TIMES, _WIDE = 3, 48, 3, 8
_CONVERSATIONS, _TURNS = 30, 4
_BY_CHANCE = 0.8  # of the later turns on the first turn's shard; a third is what chance gives
_LEAST_SHARE = 0.1  # of the keyless requests; a third would be even
_TAKES_S = 0.05  # of an answer, so that shards differ in what they have in flight
_STEADY = "Hash or remember the session, so that only the sessions of a shard that is gone move."


@dataclass
class _Sessions:
    """The keys of sessions and where their requests went."""

    rig: Rig
    header: bytes
    homes: dict[str, str] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)
    dead: Backend | None = None

    async def sweep(self, keys: Iterable[str]) -> dict[str, str]:
        """Ask once for each key; the shard that answered it, "" for none. Other text each time: the header is alone."""
        turn = asyncio.Semaphore(_WIDE)

        async def one(key: str) -> str:
            async with turn:
                name = self.rig.name("session")
                self.replies.append(await self.rig.chat(name, headers=((self.header, key.encode()),)))
                return _shard(self.rig, name)

        keys = list(keys)
        return dict(zip(keys, await asyncio.gather(*map(one, keys)), strict=True))

    def taken(self, seen: str) -> tuple[Result | None, list[str]]:
        """The result if the answers since the last look were not all good, and what they were."""
        replies, self.replies = self.replies, []
        return _answers(self.rig, replies, seen)


def _answers(rig: Rig, replies: Sequence[Reply], seen: str) -> tuple[Result | None, list[str]]:
    ends = tally(replies)
    lines = [f"answers: {ends}", *(str(reply) for reply in replies if not reply.ok)][:6]
    if bad := rig.bench.flaws(replies):
        return Result(Word.UNSAFE, f"{seen}; answers {ends}: {bad[0]}", FAIL_OVER, lines), lines
    if not all(reply.ok for reply in replies):
        return Result(Word.BOUNDED, f"{seen}; answers {ends}", FAIL_OVER, lines), lines
    return None, lines


def _shard(rig: Rig, name: str) -> str:
    return next((one.shard for one in reversed(rig.delivered(name))), "")


def _spread(shards: Iterable[str]) -> str:
    counts = Counter(shards)
    return "/".join(str(counts[name]) for name in NAMES[:_SHARDS])


async def _sticks(sessions: _Sessions) -> Result:
    """Each key several times, each time at another place in the order: a router that takes turns knows no session."""
    keys = [f"key-{number}" for number in range(_KEYS)]
    sweeps = [await sessions.sweep(keys[first:] + keys[:first]) for first in range(_TIMES)]
    sessions.homes = sweeps[0]
    stuck = sum(len({sweep[key] for sweep in sweeps}) == 1 for key in sessions.homes)
    used = Counter(sessions.homes.values())
    seen = f"{stuck} of {_KEYS} keys on one shard each in {_TIMES} rounds, A/B/C {_spread(sessions.homes.values())}"
    failed, lines = sessions.taken(seen)
    if failed:
        return failed
    if stuck < _KEYS:
        moved = [f"{key}: {', '.join(sweep[key] for sweep in sweeps)}" for key in sessions.homes]
        return Result(Word.BOUNDED, seen, _STEADY, [*lines, *moved[:8]])
    if len(used) < _SHARDS:
        return Result(
            Word.BOUNDED,
            f"{seen}: not every shard has sessions",
            "Spread the sessions over all shards, by more points of a hash ring or by what is in flight.",
            lines,
        )
    return safe(seen, lines)


async def _death(sessions: _Sessions) -> Result:
    """The shard with the most keys refuses."""
    homes = sessions.homes
    doomed = Counter(homes.values()).most_common(1)[0][0]
    sessions.dead = next(backend for backend in sessions.rig.backends if backend.name == doomed)
    await sessions.dead.down()
    sweeps = [await sessions.sweep(homes), await sessions.sweep(homes)]
    survivors = [key for key, home in homes.items() if home != doomed]
    moved = [key for key in survivors if any(sweep[key] != homes[key] for sweep in sweeps)]
    orphans = [sweeps[1][key] for key, home in homes.items() if home == doomed]
    seen = (
        f"shard {doomed} refuses: {len(moved)} of {len(survivors)} keys of the others moved, "
        f"its {len(orphans)} went A/B/C {_spread(orphans)}"
    )
    failed, lines = sessions.taken(seen)
    lines += [f"{key}: {homes[key]}, then {', '.join(sweep[key] for sweep in sweeps)}" for key in moved[:8]]
    if failed:
        return failed
    return Result(Word.BOUNDED, seen, _STEADY, lines) if moved else safe(seen, lines)


async def _return(sessions: _Sessions) -> Result:
    """It serves again: new sessions reach it, and those of the others stay. Its own may come back or not."""
    homes, dead = sessions.homes, sessions.dead
    if dead is None:
        raise ValueError("no shard has died before")
    await dead.up()

    async def reaches(number: int) -> bool:
        news = await sessions.sweep(f"new-{number}-{part}" for part in range(_WIDE))
        return dead.name in news.values()

    waited = await until_used(reaches)
    sweep = await sessions.sweep(homes)
    survivors = [key for key, home in homes.items() if home != dead.name]
    moved = [key for key in survivors if sweep[key] != homes[key]]
    own = [key for key, home in homes.items() if home == dead.name]
    back = sum(sweep[key] == dead.name for key in own)
    used = f"has new sessions after {waited:.1f} s" if waited is not None else f"has none in {BACK_WITHIN_S:g} s"
    seen = (
        f"shard {dead.name} is back and {used}; {back} of its {len(own)} keys returned, "
        f"{len(moved)} of {len(survivors)} keys of the others moved"
    )
    failed, lines = sessions.taken(seen)
    if failed:
        return failed
    if moved or waited is None:
        return Result(Word.BOUNDED, seen, _STEADY if moved else READMIT, lines)
    return safe(seen, lines)


async def _keyless(rig: Rig) -> Result:
    """Requests that share nothing and have no header: every engine takes part."""
    turn = asyncio.Semaphore(_WIDE)

    async def one() -> tuple[str, Reply]:
        async with turn:
            name = rig.name("keyless")
            rig.scripts[name] = plain(ok(), after_s=_TAKES_S)
            reply = await rig.chat(name)
            return _shard(rig, name), reply

    asked = await asyncio.gather(*(one() for _ in range(_KEYS)))
    counts = Counter(shard for shard, _ in asked)
    seen = f"{_KEYS} requests without a header, {_WIDE} at a time: A/B/C {_spread(counts.elements())}"
    failed, _ = _answers(rig, [reply for _, reply in asked], seen)
    if failed:
        return failed
    if min(counts[name] for name in NAMES[:_SHARDS]) < _LEAST_SHARE * _KEYS:
        right = "Send a request without a session to the shard that has least to do, not all to one."
        return Result(Word.BOUNDED, seen, right)
    return safe(seen)


async def _conversations(rig: Rig) -> Result:
    """As NeMo-Gym sends them: no header, and each turn's messages begin with those of the turn before."""
    turn = asyncio.Semaphore(_WIDE)

    replies: list[Reply] = []

    async def one(number: int) -> list[str]:
        async with turn:
            return [await _say(rig, number, count, replies) for count in range(1, _TURNS + 1)]

    paths = await asyncio.gather(*map(one, range(_CONVERSATIONS)))
    later = [shard == path[0] for path in paths for shard in path[1:]]
    share = sum(later) / len(later)
    whole = sum(len(set(path)) == 1 for path in paths)
    seen = (
        f"{whole} of {_CONVERSATIONS} conversations of {_TURNS} turns on one shard each, "
        f"{share:.0%} of the later turns on the first one's; A/B/C {_spread(path[0] for path in paths)}"
    )
    failed, _ = _answers(rig, replies, seen)
    if failed:
        return failed
    lines = [", ".join(path) for path in paths[:8]]
    if len({path[0] for path in paths}) == 1:
        return Result(
            Word.BOUNDED,
            f"{seen}: one shard has all",
            "Spread the conversations over all shards: one that begins goes to the shard that has least to do.",
            lines,
        )
    if all(later):
        return safe(seen, lines)
    right = "Know a conversation by how its messages begin: NeMo-Gym sends no header."
    return Result(Word.BOUNDED if share > _BY_CHANCE else Word.NOT_APPLICABLE, seen, right, lines)


async def _say(rig: Rig, number: int, count: int, replies: list[Reply]) -> str:
    """Turn `count` of a conversation; gives the shard that answered."""
    names = [f"turn.{number}.{past}" for past in range(count)]
    rig.scripts[names[-1]] = plain(ok(), after_s=_TAKES_S)
    said: list[Mapping[str, str]] = [{"role": "system", "content": f"You are number {number}. {'Think. ' * 40}"}]
    for name in names:
        said += [{"role": "user", "content": f"A question. {tag(name)}"}, {"role": "assistant", "content": "ok"}]
    body = orjson.dumps({"model": MODEL, "messages": said[:-1], "max_tokens": 16})
    replies.append(await rig.ask(post(rig.router.url, body)))
    return _shard(rig, names[-1])


_BY_HEADER = {"header_sticks": _sticks, "header_on_death": _death, "header_on_return": _return}
CHECKS: Sequence[str] = ("keyless_spread", "conversation_sticks", *_BY_HEADER)


async def probe(bench: Bench, _shared: SharedRig, notes: Notes) -> None:
    """One after the other: a shard dies on the way."""
    name = Group.AFFINITY.slug
    async with bench.rig(name, _SHARDS) as rig:
        await notes.take("keyless_spread", _keyless(rig), rig.bench.patience_s * 4)
        await notes.take("conversation_sticks", _conversations(rig), rig.bench.patience_s * 4)
        if not bench.affinity_command:
            await _by_header(bench, rig, notes)
    if bench.affinity_command:
        keeping = dataclasses.replace(bench, command=bench.affinity_command)
        async with keeping.rig(f"{name}-sessions", _SHARDS) as rig:
            await _by_header(bench, rig, notes)


async def _by_header(bench: Bench, rig: Rig, notes: Notes) -> None:
    if not bench.session_header:
        for check in _BY_HEADER:
            notes.note(check, Result(Word.NOT_APPLICABLE, "it has no header that keeps a session on a shard"), 0.0)
        return
    sessions = _Sessions(rig, bench.session_header.encode())
    for check, judge in _BY_HEADER.items():
        await notes.take(check, judge(sessions), rig.bench.patience_s * 4)
