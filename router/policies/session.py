"""The default: a conversation stays where its prefix is cached, and leaves a full engine only for one with room.

Placement of new sessions does most of the work: by requests in flight and by the contexts that engines hold, with the
siblings of a group packed while their shard is not over the mean. Without metrics, nothing ever moves.
"""

from collections import deque
from collections.abc import Collection, Sequence
from random import Random
from typing import Generic

from .base import Choice, PolicySettings, Pressure, S, Sample, Turn, some_of
from .books import FORGOTTEN_AT_ONCE, RESIDENT_S, Book, Groups, Session, Sessions
from .consistent_hash import hash64
from .pressure import PressureGauge

FULL = 0.9  # a home over this may be left,
FULL_AND_WAITING = 0.8  # or over this, if requests wait there,
ROOM = 0.8  # for a shard that stays under this with the prompt
GAP = 0.2  # and is so much emptier.
MOVE_PAUSE_S = 60.0  # Not again for so long,
MOVES_PER_REQUEST = 0.006  # and only so often over all.
MOVES_AT_START = 5.0
MOVES_KEPT = 20.0
PLACED_AMONG = 16  # shards, if there are more: a new session must not cost more in a larger fleet
PACKED_LOAD = 1.15  # of the mean: up to this, a group's next sibling joins the others
# A session that leaves its shard, or has lost it, goes only where no more tokens than this are to be computed then (a
# lost one, if there is such a shard). What piles up shows in no metric before it is computed: in a quarter of the
# simulated outages, and in a sixth of the runs near capacity, a shard that got too many evicted and recomputed. New
# sessions have no bound: near the fleet's capacity packing is worth more.
COLD_TOKENS = 100_000


class SessionPolicy(Generic[S]):
    """Session affinity with a KV guard."""

    reads_turns = True
    reads_metrics = True

    def __init__(self, settings: PolicySettings, random: Random) -> None:
        self._capacity = settings.kv_capacity_tokens
        self._random = random.random
        self.sessions: Sessions[S] = Sessions(settings.session_entries, settings.session_ttl_s)
        self._groups: Groups[S] = Groups()
        self.books: dict[S, Book[S]] = {}
        self._serving: list[Book[S]] = []
        self._in_flight = 0  # on all that serve
        self._resident = 0
        self._quiet: deque[tuple[float, Session[S]]] = deque()  # when to look whether a session is still resident
        self._moves = MOVES_AT_START
        self._gauge = PressureGauge()

    # Who serves

    def set_serving(self, serving: Sequence[S], now: float, resting: Sequence[S] = ()) -> None:
        """Shards in neither list are lost: their sessions are placed anew, and they come back empty."""
        del now
        kept = {*serving, *resting}
        for shard in [shard for shard in self.books if shard not in kept]:
            self.books.pop(shard).lost = True
        for shard in (*serving, *resting):
            if shard not in self.books:
                self.books[shard] = Book(shard, hash64(shard.url.encode()))
        for book in self._serving:
            book.serving = False
        self._serving = sorted((self.books[shard] for shard in serving), key=lambda book: book.order)
        for book in self._serving:
            book.serving = True
        self._in_flight = sum(book.in_flight for book in self._serving)
        self._resident = sum(book.resident for book in self._serving)

    # Choosing

    def knows(self, key: bytes, now: float) -> bool:
        """Whether it has a home: where it starts or is placed anew, its group matters too."""
        session = self.sessions.find((key,), now)
        return session is not None and not session.book.lost

    def choose(self, turn: Turn, now: float, tried: Collection[S] = ()) -> Choice[S] | None:
        """The home, if it may serve; a shard by load for all else."""
        self._forget_quiet(now)
        self._moves = min(MOVES_KEPT, self._moves + MOVES_PER_REQUEST)
        session = self.sessions.find(turn.keys, now)
        home = None if session is None else session.book
        if session is None or not session.book.serving or session.book.shard in tried:
            book = self._place(turn, session, now, tried)
        else:
            if not turn.light and (roomier := self._roomier(session, turn, now, tried)) is not None:
                self._rehome(session, roomier)
            book = session.book
        if book is None:
            return None
        book.in_flight += 1
        self._in_flight += 1
        if turn.light:
            return Choice(book.shard, (book, None, 0))
        session = self._settle(session, book, turn, now)
        cold = 0 if book is home else session.tokens
        book.cold += cold
        session.open += 1
        if turn.group:
            self._groups.served(turn.group, book)
        return Choice(book.shard, (book, session, cold))

    def _settle(self, session: Session[S] | None, book: Book[S], turn: Turn, now: float) -> Session[S]:
        """Open a session, or go on with it; its home changes if the old one is lost, or has never answered.

        A detour, for a retry or while the home rests, changes no home.
        """
        if session is None:
            session = Session(book, turn.tokens, now)
        elif session.book is not book and (session.book.lost or not session.answered):
            self._rehome(session, book)
        self._resize(session, session.context(turn.tokens))
        self._count(session, resident=True)
        if turn.keys:
            self.sessions.name(turn.keys[0], session, now)
        return session

    def _rehome(self, session: Session[S], book: Book[S]) -> None:
        self._count(session, resident=False)
        session.book = book

    def _roomier(self, session: Session[S], turn: Turn, now: float, tried: Collection[S]) -> Book[S] | None:
        """The shard for which a session leaves its full home."""
        home = session.book.fresh(now)
        if home is None or not (home.usage > FULL or (home.waiting and home.usage > FULL_AND_WAITING)):
            return None
        if self._gauge.now.full or self._moves < 1 or now - session.moved_at < MOVE_PAUSE_S:
            return None
        usages = [
            (sample.usage + book.added, book, sample)
            for book in some_of(self._serving, int(self._random() * len(self._serving)))
            if book.shard not in tried and (sample := book.fresh(now)) is not None
        ]
        usage, book, sample = min(usages, key=lambda entry: entry[0], default=(1.0, session.book, home))
        capacity = self._capacity or sample.capacity
        if not capacity:
            return None
        context = session.context(turn.tokens)
        share = context / capacity
        if usage + share >= ROOM or usage > home.usage - GAP or not self._takes(book, context):
            return None
        book.added += share
        self._moves -= 1
        session.moved_at = now
        return book

    def _place(self, turn: Turn, session: Session[S] | None, now: float, tried: Collection[S]) -> Book[S] | None:
        """For what has no home: among the shards that hold its first turn, or else the least loaded of all."""
        serving = self._serving
        count = len(serving)
        if not count:
            return None
        by_flight = 0.5 / max(1.0, self._in_flight / count)
        by_resident = 0.5 / max(1.0, self._resident / count)

        def load(book: Book[S]) -> float:
            return by_flight * book.in_flight + by_resident * book.resident

        warm = [book for book in self._groups.books(turn.group) or () if book.serving and book.shard not in tried]
        if turn.light and warm:
            return warm[0]
        packed = [book for book in warm if load(book) <= PACKED_LOAD and self._has_room(book, now)]
        context = None if session is None else session.context(turn.tokens)
        if context is not None:
            packed = [book for book in packed if self._takes(book, context)]
        choices: Sequence[Book[S]] = packed or some_of(serving, int(self._random() * count), PLACED_AMONG)
        if tried and not packed:
            choices = [book for book in choices if book.shard not in tried] or [
                book for book in serving if book.shard not in tried
            ]
        if context is not None and not packed:
            choices = [book for book in choices if self._takes(book, context)] or choices
        return min(choices, key=load, default=None)

    @staticmethod
    def _has_room(book: Book[S], now: float) -> bool:
        sample = book.fresh(now)
        return sample is None or sample.usage + book.added < ROOM

    @staticmethod
    def _takes(book: Book[S], context: int) -> bool:
        """Whether one more context may be computed anew there."""
        return not book.cold or book.cold + context <= COLD_TOKENS

    # Learning

    def ended(self, choice: Choice[S], now: float, tokens: int | None = None, key: bytes = b"") -> None:
        """Release the shard; remember how long the context has become."""
        if choice.books is None:  # not this policy's choice
            return
        book, session, cold = choice.books
        book.in_flight -= 1
        book.cold -= cold
        if book.serving:
            self._in_flight -= 1
        if session is None:
            return
        session.open -= 1
        session.touched_at = now
        if tokens is not None and session.book is book:
            session.answered = True
            self._resize(session, tokens)
            if key:
                self.sessions.name(key, session, now)
        if not session.queued:
            session.queued = True
            self._quiet.append((now + RESIDENT_S, session))

    def scraped(self, shard: S, sample: Sample, now: float) -> None:
        """Believe it for a while."""
        book = self.books.get(shard)
        if book is None:
            return
        self._gauge.note(book.sample, sample)
        book.sample, book.sampled_at, book.added = sample, now, 0.0
        if self._gauge.round_is_over(now):
            fresh = (book.fresh(now) for book in self._serving)
            self._gauge.judge([sample.usage for sample in fresh if sample is not None], now)

    def pressure(self) -> Pressure:
        """As of the last round of metrics."""
        return self._gauge.now

    def _forget_quiet(self, now: float) -> None:
        """Nobody says when a rollout is over, so contexts count for a while after the last answer."""
        quiet = self._quiet
        for _ in range(FORGOTTEN_AT_ONCE):
            if not quiet or quiet[0][0] > now:
                break
            _, session = quiet.popleft()
            due = session.touched_at + RESIDENT_S
            if session.open or due > now:
                quiet.append((max(due, now + RESIDENT_S) if session.open else due, session))
            else:
                session.queued = False
                self._count(session, resident=False)

    def _resize(self, session: Session[S], tokens: int) -> None:
        if session.resident:
            self._add(session.book, tokens - session.tokens)
        session.tokens = tokens

    def _count(self, session: Session[S], *, resident: bool) -> None:
        if session.resident is not resident:
            session.resident = resident
            self._add(session.book, session.tokens if resident else -session.tokens)

    def _add(self, book: Book[S], tokens: int) -> None:
        book.resident += tokens
        if book.serving:
            self._resident += tokens
