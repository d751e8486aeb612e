"""What the bytes of one client connection amount to: one `Attempt` for each HTTP exchange.

Pure: it sees the bytes and endings of both directions with their times, and holds no body, only hashes. A stream that
cannot be parsed ends the exchange it belongs to and is never an error here.
"""

import hashlib
import re
from collections import deque
from collections.abc import Callable

from .history import Attempt, Ending
from .http1 import Bad, Mark, RequestFollower, RequestHead, ResponseFollower, ResponseHead, header
from .tags import call_of

_SECOND_HEAD = re.compile(rb"HTTP/1\.[01] [1-5]\d\d[ \r]")
_SURPLUS = "bytes after the end of the response"
_OVERLAP = 256  # bytes that are looked at twice, so that nothing is missed between two pieces of a body


class _Body:
    """A body that went by: its hash, its size, and what a search in it found."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._tail = b""
        self.size = 0

    def add(self, data: bytes) -> bytes:
        """Count the next piece; returns it behind the end of the piece before, to be searched."""
        self._hash.update(data)
        self.size += len(data)
        window = self._tail + data
        self._tail = window[-_OVERLAP:]
        return window

    def sha256(self) -> str:
        return self._hash.hexdigest()


class _Exchange:
    def __init__(self, started: float, path: str = "", call: str = "") -> None:
        self.started = started
        self.path = path
        self.call = call
        self.request_whole = False
        self.head: ResponseHead | None = None
        self.second_head = False
        self.detail = ""
        self._sent = _Body()
        self._received = _Body()

    @property
    def response_bytes(self) -> int:
        return self._received.size

    def request_body(self, data: bytes) -> None:
        self.call = call_of(self._sent.add(data)) or self.call

    def response_body(self, data: bytes) -> None:
        self.second_head = _SECOND_HEAD.search(self._received.add(data)) is not None or self.second_head

    def attempt(self, ending: Ending, ended: float | None, detail: str) -> Attempt:
        head = self.head
        return Attempt(
            call=self.call,
            path=self.path,
            started=self.started,
            ended=ended,
            ending=ending,
            status=None if head is None else head.status,
            request_sha256=self._sent.sha256() if self.request_whole else "",
            response_sha256=self._received.sha256() if ending is Ending.COMPLETE else "",
            response_bytes=self.response_bytes,
            reason="" if head is None else header(head.headers, b"x-router-reason").decode("latin-1"),
            detail=detail,
        )


class Exchanges:
    """The exchanges of one connection between a client and the router, pipelined ones included."""

    def __init__(self, emit: Callable[[Attempt], None]) -> None:
        self._emit = emit
        self._requests = RequestFollower()
        self._responses = ResponseFollower()
        self._asking: _Exchange | None = None
        self._open: deque[_Exchange] = deque()
        self._last = _Exchange(0.0)
        self._bad = ""
        self._router_left = ""
        self._over = False
        self.begun = False

    def __len__(self) -> int:
        """How many have no end yet."""
        return len(self._open)

    @property
    def asked(self) -> bool:
        """Whether a whole request waits for its answer."""
        return any(exchange.request_whole for exchange in self._open)

    def request_bytes(self, data: bytes, now: float) -> None:
        """The client has sent bytes."""
        for event in self._requests.feed(data):
            match event:
                case Mark.BEGIN:
                    self._asking = self._begin(now)
                case RequestHead() if self._asking:
                    self._asking.path = event.path
                case bytes() if self._asking:
                    self._asking.request_body(event)
                case Mark.END if self._asking:
                    self._asking.request_whole = True
                    self._asking = None
                case Bad():
                    # Whatever the client sent, the router may answer it.
                    (self._asking or self._begin(now)).detail = f"request: {event.why}"
                case _:
                    pass
        if self._router_left:
            self._end_all_unanswered(now)

    def response_bytes(self, data: bytes, now: float) -> None:
        """The router has sent bytes."""
        if not self._open:
            self._surplus(now)
            return
        done: list[_Exchange] = []
        for event in self._responses.feed(data):
            if isinstance(event, Bad):
                self._bad = self._bad or event.why
            elif not self._open:
                self._bad = _SURPLUS
            elif isinstance(event, ResponseHead):
                self._open[0].head = event
            elif isinstance(event, bytes):
                self._open[0].response_body(event)
            elif event is Mark.END:
                done.append(self._open.popleft())
        if self._bad:
            # The bytes belong to the response that they cut short, or else follow the last one.
            self._close(self._open.popleft() if self._open else done.pop(), Ending.BAD_HTTP, now, self._bad)
        for exchange in done:
            self._close(exchange, Ending.COMPLETE, now)

    def router_left(self, now: float, *, reset: bool) -> None:
        """The router has closed (FIN) or reset the connection. What is asked after that has no answer."""
        self._router_left = "reset" if reset else "closed"
        self._end_all_unanswered(now)

    def all_ended(self, ending: Ending, now: float | None) -> None:
        """Give every open exchange the same end: the client left, nothing listened, or the run is over (None)."""
        self._over = True
        while self._open:
            self._close(self._open.popleft(), ending, now)

    def _end_all_unanswered(self, now: float) -> None:
        how = self._router_left
        while self._open:
            exchange = self._open.popleft()
            if self._bad:
                self._close(exchange, Ending.BAD_HTTP, now, self._bad)
            elif exchange.head is None:
                self._close(exchange, Ending.NO_ANSWER, now, how)
            elif exchange.head.close_delimited and how == "closed":
                self._close(exchange, Ending.COMPLETE, now)
            elif exchange.second_head:
                self._close(exchange, Ending.BAD_HTTP, now, "a second status line inside the body")
            else:
                self._close(exchange, Ending.TRUNCATED, now, f"{how} after {exchange.response_bytes} body bytes")

    def _begin(self, now: float) -> _Exchange:
        exchange = _Exchange(now)
        self.begun = True
        self._open.append(exchange)
        return exchange

    def _surplus(self, now: float) -> None:
        """Bytes that nobody asked for: recorded once, as an exchange of their own."""
        if not self._bad and not self._over:
            self._bad = _SURPLUS
            unasked = _Exchange(now, path=self._last.path, call=self._last.call)
            self._close(unasked, Ending.BAD_HTTP, now, _SURPLUS)

    def _close(self, exchange: _Exchange, ending: Ending, now: float | None, detail: str = "") -> None:
        self._last = exchange
        self._emit(exchange.attempt(ending, now, "; ".join(filter(None, (exchange.detail, detail)))))
