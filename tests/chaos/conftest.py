"""What several test files need: servers that are nothing but a socket, scorecards, a browser."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gymproof.chaos.conform.findings import Finding, Group, Scorecard, Word
from gymproof.chaos.scenario import SUFFIX, shipped
from gymproof.chaos.wiretap import Wiretap

CHROMIUM = shutil.which("chromium")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _raw_server(handler: Handler) -> AsyncIterator[int]:
    """A loopback server that runs `handler` on each connection; gives its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader, writer):
        try:
            await handler(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    def accept(reader, writer):
        tasks.add(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def raw_server():
    """A context manager around a server; its argument handles (reader, writer), its value is the port."""
    return _raw_server


@asynccontextmanager
async def _tapped(handler: Handler) -> AsyncIterator[Any]:
    """A client's connection through a wiretap to a router: the tap, both its ends, and the attempts."""
    attempts = []
    async with _raw_server(handler) as port, Wiretap(port, attempts.append) as tap:
        reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
        yield tap, reader, writer, attempts
        writer.close()


@pytest.fixture
def tapped():
    """A context manager around a router that is only a handler, a wiretap in front of it, and a client's connection."""
    return _tapped


PROBES = {
    Group.PAYLOAD: ["request_body", "prompt_token_ids", "generation_log_probs", "unknown_fields", "answer_body"],
    Group.HEADERS: ["authorization", "cookie", "x_session_id", "set_cookie", "answer_headers"],
    Group.PATHS: ["tokenize", "models", "completions", "responses"],
    Group.AFFINITY: ["sticky", "shard_dies", "shard_returns", "keyless_spread"],
    Group.CANCELLATION: ["before_answer", "inside_answer"],
    Group.LOAD: ["request_4_mib", "answer_8_mib", "1500_in_flight"],
    Group.RESTART: ["kill", "terminate"],
}
REMEDIES = [
    "answer 409 when no shard is left: Gym tries 503 again without end",
    "hold the head of an answer back until its whole body is there",
    "forward the request's bytes as they came",
]
ROUTERS = {"gymproof": 50, "vllm-router": 7, "sglang-router": 6, "smg": 5, "nginx": 3, "haproxy": 3, "litellm": 2}


def _card(router: str, every: int) -> Scorecard:
    """A card on which one check in `every` is bad, and one in ten of the others no better than bounded."""
    faults = [path.name.removesuffix(SUFFIX) for path in shipped()]
    checks = {Group.ONE: faults, Group.ALL: faults, Group.RECOVERY: ["bad_requests", "hang_ups"], **PROBES}
    named = [(group, check) for group, names in checks.items() for check in names]
    return Scorecard(
        router=router,
        title=router.title(),
        version="1.22.1",
        command=f"{router} --port {{port}} --backends {{backends}} --timeout {{deadline_s}}",
        settings="retries on; a failed shard rests for 2 s; the deadline is each attempt's",
        client="nemo-gym 0.4.0",
        started=1_796_000_000.0 + every,
        seconds=250.0 + every,
        versions={"gymproof": "0.5.0", "python": "3.12.1", "toxiproxy-server": "2.12.0"},
        machine={"system": "Linux", "cpus": "2"},
        findings=tuple(_finding(number, group, check, every) for number, (group, check) in enumerate(named, 1)),
    )


def _finding(number: int, group: Group, check: str, every: int) -> Finding:
    if number % every == 0:
        return Finding(
            group=group,
            check=check,
            word=Word.UNSAFE,
            seen=f"503 in {number} of 40 answers, and no end of it within 3 s",
            right=REMEDIES[number % 3],
            evidence=tuple(
                f"fault-{line}.t0 /v1/chat/completions: 503 after 0.0{line} s; shard 0: reset, shard 1: answered 200"
                for line in range(12)
            ),
            records=f"{check}-{group.slug}",
            seconds=2.5,
        )
    if number % 10 == 0:
        return Finding(group=group, check=check, word=Word.BOUNDED, seen="3 of 32 rollouts lost", right=REMEDIES[0])
    if number % 31 == 0:
        return Finding(group=group, check=check, word=Word.NOT_APPLICABLE, seen="it keeps no session")
    return Finding(group=group, check=check, word=Word.SAFE, seen=f"all rollouts completed in {number / 10:.1f} s")


@pytest.fixture
def cards():
    """Seven scorecards, the first of them of the best router."""
    return [_card(router, every) for router, every in ROUTERS.items()]


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium, the machine's own. No longer than a module: while it is there, no other loop can run."""
    if CHROMIUM is None:
        pytest.skip("needs chromium on PATH")
    sync_api = pytest.importorskip("playwright.sync_api")
    quiet = ["--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *quiet])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser):
    """Open a file with the given settings; whatever the page asks of the network or complains about is wrong."""
    contexts, wrong = [], []

    def open_file(path, **settings):
        context = browser.new_context(offline=True, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: request.url.startswith("file:") or wrong.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert wrong == []
