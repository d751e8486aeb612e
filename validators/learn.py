"""Measures a contract: plays every case to a client and records how each call ended.

Works with any client that has `chat`; which ones there are is in `clients`.
"""

import asyncio
import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from .cases import FAULT_CASES, STATUS_CASES
from .clients import ChatClient, ClientKind
from .contract import UNTIMED, Behaviour, Contract, Handling, Timing
from .script import Case
from .scripted_server import Stage, play

# Seconds that an endless call gets to end by itself once the server has healed, because clients
# leak connections when they are cancelled in the middle of an answer.
SETTLE_S = 1.0


async def observe(client: ChatClient, case: Case, *, patience_s: float = 8.0, heal_after_s: float = 1.0) -> Behaviour:
    """Play one case to `client` and say what it did.

    A call counts as hanging when `patience_s` seconds pass without a further request or an
    end, and as unbounded at `case.cap` requests. What has not ended by then is cancelled.
    """
    async with play(case, heal_after_s=heal_after_s) as stage:
        if case.warm_gap_s is not None:
            await client.chat(stage.base_url, **_body(0))
            await asyncio.sleep(case.warm_gap_s)
        before = stage.requests
        call = asyncio.ensure_future(client.chat(stage.base_url, **_body(case.body_bytes)))
        try:
            endless = await _until_decided(call, stage, before + case.cap, patience_s)
            behaviour = _judge(call, stage, stage.requests - before, endless=endless)
            if endless:
                stage.healed = True
                await asyncio.wait({call}, timeout=SETTLE_S)
            return behaviour
        finally:
            call.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await call


async def _until_decided(call: "asyncio.Future[Any]", stage: Stage, cap: int, patience_s: float) -> bool:
    """Wait for the end of the call, for `cap` requests (True), or for silence."""
    while not call.done() and stage.requests < cap:
        progress = asyncio.ensure_future(stage.progress())
        done, _ = await asyncio.wait({call, progress}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        progress.cancel()
        if not done:
            return False
    return not call.done()


def _judge(call: "asyncio.Future[Any]", stage: Stage, requests: int, *, endless: bool) -> Behaviour:
    if not call.done():
        if endless:
            return Behaviour(Handling.UNBOUNDED, None)
        return Behaviour(Handling.HANGS, requests)
    if (error := call.exception()) is not None:
        return Behaviour(Handling.RAISED, requests, type(error).__name__)
    if stage.healed:
        return Behaviour(Handling.UNBOUNDED, None)
    return Behaviour(Handling.RETURNED, requests)


def _body(text_bytes: int) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "x" * max(text_bytes, 2)}]}


Progress = Callable[[str, Behaviour], None]


async def learn(
    client_factory: Callable[[], AbstractAsyncContextManager[ChatClient]],
    statuses: Mapping[int, Case] = STATUS_CASES,
    faults: Mapping[str, Case] = FAULT_CASES,
    *,
    client: str = "measured",
    version: str = "",
    timing: Timing = UNTIMED,
    measured_with: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    concurrency: int = 24,
    patience_s: float = 8.0,
    heal_after_s: float = 1.0,
) -> Contract:
    """Measure every case, at most `concurrency` at a time, and return the table.

    `progress` is called with the name and the behaviour of each case as it ends.
    """
    gate = asyncio.Semaphore(concurrency)
    async with client_factory() as driver, asyncio.TaskGroup() as group:

        async def one(name: str, case: Case) -> Behaviour:
            async with gate:
                behaviour = await observe(driver, case, patience_s=patience_s, heal_after_s=heal_after_s)
            if progress is not None:
                progress(name, behaviour)
            return behaviour

        fault_tasks = {name: group.create_task(one(name, case)) for name, case in faults.items()}
        status_tasks = {s: group.create_task(one(f"status {s}", case)) for s, case in statuses.items()}
    return Contract(
        client=client,
        version=version,
        statuses={status: task.result() for status, task in status_tasks.items()},
        faults={name: task.result() for name, task in fault_tasks.items()},
        timing=timing,
        measured_with=measured_with or {},
    )


def measure(name: str, kind: ClientKind, *, real_sleeps: bool = False, progress: Progress | None = None) -> Contract:
    """The contract of the client that is installed. Raises ClientUnavailableError where it is not."""
    pace = kind.pace.with_real_sleeps() if real_sleeps else kind.pace
    version, timing = kind.version(), kind.timing()
    return asyncio.run(
        learn(
            functools.partial(kind.open, pace),
            client=name,
            version=version,
            timing=timing,
            measured_with=kind.measured_with(),
            progress=progress,
            concurrency=pace.concurrency,
            patience_s=pace.patience_s,
            heal_after_s=pace.heal_after_s,
        )
    )
