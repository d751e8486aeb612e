"""A streamed answer on its way through: committed at its first event, then only its own end or an error event."""

from dataclasses import dataclass
from http import HTTPStatus

from .answers import error_event
from .calls import Call, ClientStream
from .failures import VERDICTS, AttemptError, Outcome, Reached
from .headers import passed_back
from .sse import StreamWatch, has_event
from .upstream_connection import BodyStream, Response


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """How a stream ended."""

    outcome: Outcome
    detail: str
    reached: Reached


async def relay(call: Call, response: Response, stream: BodyStream) -> StreamEnd:
    """Pass a stream on, and end it.

    Raises AttemptError while nothing has gone to the client yet, so that another shard can still be tried, and
    ClientGoneError. The upstream connection is dropped on every way out but the stream's own end.
    """
    watch = StreamWatch()
    try:
        first = await _first_event(stream, watch)
        client = await call.open_stream(response.status, passed_back(response.headers))
        return await _pass_on(client, stream, watch, first)
    finally:
        stream.drop()


async def _first_event(stream: BodyStream, watch: StreamWatch) -> bytes:
    data = b""
    while not has_event(data):
        chunk = await stream.next()
        if not chunk:
            raise AttemptError(Outcome.INVALID, "the stream ended before its first event", reached=Reached.HEAD)
        data += chunk
    watch.feed(data)
    if watch.failed:
        raise AttemptError(Outcome.ERRED, "the stream's first event is an error", reached=Reached.HEAD)
    return data


async def _pass_on(client: ClientStream, stream: BodyStream, watch: StreamWatch, first: bytes) -> StreamEnd:
    chunk = first
    try:
        while chunk:
            await client.write(chunk)
            chunk = await stream.next()
            watch.feed(chunk)
    except AttemptError as error:
        return await _cut(client, error.detail)
    if stream.close_delimited and not watch.done and not watch.failed:
        return await _cut(client, "the backend closed the stream before its end")
    await client.end()
    if watch.failed:
        return StreamEnd(Outcome.CUT_STREAM, "the backend reported an error inside the stream", Reached.BODY)
    return StreamEnd(Outcome.SERVED, "", Reached.BODY)


async def _cut(client: ClientStream, detail: str) -> StreamEnd:
    reason = VERDICTS[Outcome.CUT_STREAM].reason
    await client.write(error_event(reason, f"{HTTPStatus.OK.value} turned into a failure: {detail}"))
    await client.end()
    return StreamEnd(Outcome.CUT_STREAM, detail, Reached.HEAD)
