"""What the session policy knows: a book for each shard, and a bounded memory of sessions."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Generic

from .base import S, Sample

NEVER = float("-inf")
SAMPLE_LIFE_S = 15.0
RESIDENT_S = 300.0  # for so long after its last answer, a session counts as in the cache
FORGOTTEN_AT_ONCE = 4  # at most, however many are due: no choice pays for all that ended together


@dataclass(slots=True, eq=False)
class Book(Generic[S]):
    """One life of a shard: when it comes back after it was lost, it gets a new one."""

    shard: S
    order: int  # by which shards are arranged, whatever order they were named in
    serving: bool = False
    lost: bool = False
    in_flight: int = 0
    cold: int = 0  # tokens: contexts in flight that have just been placed here, so that no cache here has them
    resident: int = 0  # tokens: contexts of its sessions that are in flight or have lately been answered
    sample: Sample | None = None
    sampled_at: float = NEVER
    added: float = 0.0  # share of its cache that has been moved here since the sample

    def fresh(self, now: float) -> Sample | None:
        """What its metrics said, unless that is too long ago."""
        return self.sample if now - self.sampled_at <= SAMPLE_LIFE_S else None


@dataclass(slots=True, eq=False)
class Session(Generic[S]):
    """A conversation under way."""

    book: Book[S]  # its home
    tokens: int  # of its context
    touched_at: float
    open: int = 0  # requests in flight
    answered: bool = False
    resident: bool = False  # whether its tokens are counted in the book
    queued: bool = False
    moved_at: float = NEVER
    names: list[bytes] = field(default_factory=list)  # the last two

    def context(self, guess: int) -> int:
        """Tokens, as the last answer said; a body's size is a bad guess where it carries token ids."""
        return self.tokens if self.answered else max(self.tokens, guess)


class Sessions(Generic[S]):
    """Sessions by name: at most `entries` names, the least recently used forgotten first, all after `ttl_s`."""

    def __init__(self, entries: int, ttl_s: float) -> None:
        self._entries = entries
        self._ttl_s = ttl_s
        self._named: OrderedDict[bytes, Session[S]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._named)

    def find(self, keys: tuple[bytes, ...], now: float) -> Session[S] | None:
        """The session with the first of these names that is known."""
        for key in keys:
            session = self._named.get(key)
            if session is not None and (session.open or now - session.touched_at <= self._ttl_s):
                return session
        return None

    def name(self, key: bytes, session: Session[S], now: float) -> None:
        """Remember a session by this name and its last one, so that a repeated request finds it too."""
        self._named[key] = session
        self._named.move_to_end(key)
        if not session.names or session.names[-1] != key:
            session.names.append(key)
            if len(session.names) > 2:  # noqa: PLR2004  this one and the last
                old = session.names.pop(0)
                if self._named.get(old) is session:
                    del self._named[old]
        for _ in range(FORGOTTEN_AT_ONCE):
            if len(self._named) <= self._entries and not self._oldest_is_old(now):
                break
            self._named.popitem(last=False)

    def _oldest_is_old(self, now: float) -> bool:
        session = next(iter(self._named.values()))
        return not session.open and now - session.touched_at > self._ttl_s


class Groups(Generic[S]):
    """For each first turn, the shards that have served it: the last few, of the last groups."""

    ENTRIES = 65_536
    SHARDS = 16

    def __init__(self) -> None:
        self._served: OrderedDict[bytes, deque[Book[S]]] = OrderedDict()

    def books(self, group: bytes) -> deque[Book[S]] | None:
        """Who has served it, the latest to join first."""
        return self._served.get(group)

    def served(self, group: bytes, book: Book[S]) -> None:
        """It has been sent there."""
        books = self._served.get(group)
        if books is None:
            self._served[group] = deque((book,), maxlen=self.SHARDS)
            if len(self._served) > self.ENTRIES:
                self._served.popitem(last=False)
            return
        self._served.move_to_end(group)
        if book not in books:
            books.appendleft(book)
