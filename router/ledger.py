"""What a controller knows of its fleet: a record per shard, what each kind of report does to it, and who may serve.

Pure: no clock, no call, no thread. Every time is seconds on one monotonic clock and is given by the caller.
"""

from collections.abc import Iterable, Mapping

from .health import NEVER, Event, Readmit, Record, Rules, State
from .urls import parse_backend


class Ledger:
    """The records of a fleet that is fixed for the life of a run, each found under any spelling of its URL.

    A DEAD shard serves again only after `refitted`: a restarted engine holds old weights, whatever its probes say.
    Raises BadBackendUrlError.
    """

    def __init__(self, urls: Iterable[str], *, eject_after: int, now: float) -> None:
        rules = Rules(eject_after=eject_after, readmit=Readmit.REFIT)
        self._urls = {parse_backend(url).key: url for url in urls}
        self._records = {key: Record(rules) for key in self._urls}
        self._served_at = now  # when a shard last might have served

    @property
    def urls(self) -> list[str]:
        """Every member, as it was named."""
        return list(self._urls.values())

    @property
    def serving(self) -> list[str]:
        """The members that may serve: the full set, to be pushed."""
        return [self._urls[key] for key, record in self._records.items() if record.serving]

    def states(self) -> dict[str, State]:
        """Every member's state."""
        return {url: self._records[key].state for key, url in self._urls.items()}

    def probed(self, url: str, asked: float, *, alive: bool) -> None:
        """A probe that was sent at `asked` was answered, or was not. Raises KeyError for a URL that is no member."""
        record = self._find(url)
        if asked < record.since:
            return
        if alive:
            record.silent = 0
            record.observe(Event.ANSWERS, asked)
        else:
            record.unanswered(asked, asked, busy=False)

    def drained(self, outcomes: Mapping[str, tuple[int, int]], since: float, until: float) -> None:
        """The (successes, failures) that a router saw from `since` to `until`. An unknown URL's change nothing."""
        for url, (successes, failures) in outcomes.items():
            record = self._records.get(parse_backend(url).key)
            if record is not None:
                weigh(record, successes, failures, since, until)

    def restarted(self, url: str, now: float) -> None:
        """The shard's processes are being started again. Raises KeyError for a URL that is no member."""
        self._find(url).observe(Event.RESTARTED, now)

    def refitted(self, url: str, now: float) -> None:
        """The shard holds the current weights. Raises KeyError for a URL that is no member."""
        self._find(url).observe(Event.REFITTED, now)

    def exhausted_for(self, now: float) -> float:
        """Seconds since a shard last might have served; 0.0 while one may."""
        if any(record.serving for record in self._records.values()):
            self._served_at = now
        return now - self._served_at

    def describe(self, now: float) -> str:
        """The fleet in one line, for people."""
        return "; ".join(f"{url} {_describe(self._records[key], now)}" for key, url in self._urls.items())

    def _find(self, url: str) -> Record:
        record = self._records.get(parse_backend(url).key)
        if record is None:
            raise KeyError(f"{url!r} is not a shard of this fleet: {', '.join(self.urls)}")
        return record


def weigh(record: Record, successes: int, failures: int, since: float, until: float) -> None:
    """Add a window of live traffic to a record.

    The order inside a window is not known. So its strikes are dated to its start, where only a later window's success
    forgives them; a success among failures forgives what came before the window and leaves one strike of it, since
    the shard has worked in between; and a window in which the state changed says nothing, since what it counts may
    be the processes or the weights of before.
    """
    if since < record.since:
        return
    if successes:
        record.served(since, until)
    for _ in range(min(failures, 1) if successes else failures):
        record.failed(since, since)


def _describe(record: Record, now: float) -> str:
    age = "from the start" if record.since == NEVER else f"for {now - record.since:.0f} s"
    strikes = f", {len(record.strikes)} strikes" if record.strikes else ""
    return f"{record.state.value} {age}{strikes}"
