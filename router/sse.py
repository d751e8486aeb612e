"""What a server-sent event stream says about its own end. Pure: bytes in, flags out."""

from dataclasses import dataclass

KEPT_TAIL = 64
EVENT_ENDS = (b"\n\n", b"\r\n\r\n")
_ERROR_MARKS = (b'data: {"error"', b'data:{"error"', b'"type":"error"', b'"type": "error"', b"event: error")
_DONE_MARKS = (b"data: [DONE]", b"data:[DONE]", b"response.completed", b"response.incomplete")


@dataclass(slots=True)
class StreamWatch:
    """Follows a stream that passes through: did it announce an error, did it say that it was done."""

    failed: bool = False
    done: bool = False
    _tail: bytes = b""

    def feed(self, chunk: bytes) -> None:
        """Look at the next piece; marks that fall across two pieces are found as well."""
        window = self._tail + chunk
        self.failed = self.failed or any(mark in window for mark in _ERROR_MARKS)
        self.done = self.done or any(mark in window for mark in _DONE_MARKS)
        self._tail = window[-KEPT_TAIL:]


def has_event(data: bytes) -> bool:
    """Whether `data` contains a whole event."""
    return any(end in data for end in EVENT_ENDS)
