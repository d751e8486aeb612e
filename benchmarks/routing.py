"""What a routed request costs: direct, nginx, vllm-router and gym-router, interleaved in one run.

Run it with `uv run --group bench python benchmarks/routing.py`; it needs `nginx` and `wrk` (Debian packages of those
names). The backend is one nginx worker: POST of 1 KiB, the second turn of a conversation, answer of 2 KiB JSON. CPU is
the router's own processes' user and system time; each figure is the median of the rounds, with the lowest and the
highest behind it.
"""

import argparse
import asyncio
import contextlib
import json
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import aiohttp
import psutil
from aiohttp import web
from rich.console import Console
from rich.progress import track
from rich.table import Table

ANSWER = json.dumps({"id": "c", "object": "chat.completion", "choices": [{"message": {"content": "a" * 1900}}]})
TURNS = [{"role": role, "content": "b" * 290} for role in ("user", "assistant", "user")]
REQUEST = json.dumps({"model": "m", "messages": TURNS})
PATH = "/v1/chat/completions"
NGINX = """daemon off; worker_processes 1; pid {folder}/{name}.pid; error_log {folder}/{name}.log;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {folder}; proxy_temp_path {folder};
{body} }}"""
BACKEND = """server {{ listen 127.0.0.1:{port}; default_type application/json;
location / {{ return 200 '{answer}'; }} }}"""
PROXY = """upstream shard {{ server 127.0.0.1:{backend}; keepalive 128; keepalive_requests 1000000; }}
server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://shard; proxy_http_version 1.1;
proxy_set_header Connection ""; }} }}"""
VLLM_ROUTER = (
    "vllm-router --host 127.0.0.1 --port {port} --worker-urls http://127.0.0.1:{backend} --policy round_robin "
    "--prometheus-port {spare} --prometheus-host 127.0.0.1 --log-level error"
)
GYM_ROUTER = (
    "gym-router serve --host 127.0.0.1 --port {port} --backend http://127.0.0.1:{backend} --health off --policy "
)
NAMED = "X-Session-ID"


class Peer(NamedTuple):
    """What is measured: a program and its options, none for the backend itself or nginx, and what a client sends."""

    command: str = ""
    headers: Mapping[str, str] = {"Content-Type": "application/json"}


PEERS: Mapping[str, Peer] = {
    "direct": Peer(),
    "nginx": Peer(),
    "vllm-router": Peer(VLLM_ROUTER),
    "gym-router, least_outstanding": Peer(GYM_ROUTER + "least_outstanding"),
    "gym-router, session, by the body": Peer(GYM_ROUTER + "session"),
    f"gym-router, session, {NAMED}": Peer(GYM_ROUTER + "session", {**Peer().headers, NAMED: "rollout-1"}),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one peer."""

    requests_per_s: float
    cpu_s_per_1000: float
    p50_ms: float
    p99_ms: float
    errors: int


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=64)
    options = parser.parse_args()
    for program, package in (("nginx", "nginx"), ("wrk", "wrk")):
        if shutil.which(program) is None:
            sys.exit(f"benchmarks/routing.py needs {program}: apt-get install {package}")
    console = Console(width=140)
    with tempfile.TemporaryDirectory() as folder:
        samples = measure(Path(folder), options.rounds, options.seconds, options.connections)
        console.print(table(samples))
        console.print(asyncio.run(stress(Path(folder))))


def measure(folder: Path, rounds: int, seconds: float, connections: int) -> dict[str, list[Sample]]:
    """All rounds of all peers. Each peer runs alone beside the backend, and the peers take turns."""
    samples: dict[str, list[Sample]] = {peer: [] for peer in PEERS}
    with nginx(folder, "backend", BACKEND, answer=ANSWER) as (_, backend):
        for peer in track([*PEERS] * rounds, description="rounds"):
            script = folder / "post.lua"
            headers = " ".join(f"wrk.headers['{name}']='{value}'" for name, value in PEERS[peer].headers.items())
            script.write_text(f"wrk.method='POST' wrk.body='{REQUEST}' {headers}")
            with start(peer, folder, backend) as (process, port):
                samples[peer].append(one_round(process, port, script, seconds, connections))
    return samples


def one_round(process: psutil.Process | None, port: int, script: Path, seconds: float, connections: int) -> Sample:
    """Warm up, then load for some seconds and read the router's CPU time before and after."""
    url = f"http://127.0.0.1:{port}{PATH}"
    wrk(url, script, 1.0, connections)
    before = cpu_s(process)
    report = wrk(url, script, seconds, connections)
    spent = cpu_s(process) - before
    count = int(_find(r"(\d+) requests in", report))
    errors = sum(int(number) for line in re.findall(r"Socket errors:.*", report) for number in re.findall(r"\d+", line))
    errors += int(_find(r"Non-2xx or 3xx responses: (\d+)", report, default="0"))
    return Sample(
        requests_per_s=float(_find(r"Requests/sec:\s+([\d.]+)", report)),
        cpu_s_per_1000=1000 * spent / count,
        p50_ms=_milliseconds(_find(r"50%\s+(\S+)", report)),
        p99_ms=_milliseconds(_find(r"99%\s+(\S+)", report)),
        errors=errors,
    )


def wrk(url: str, script: Path, seconds: float, connections: int) -> str:
    """Run wrk and return its report."""
    duration = f"{max(1, round(seconds))}s"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{duration}", "--latency", "-s", str(script), url]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def cpu_s(process: psutil.Process | None) -> float:
    """CPU seconds of a process and its children so far."""
    if process is None:
        return 0.0
    times = [member.cpu_times() for member in (process, *process.children(recursive=True))]
    return sum(time_.user + time_.system for time_ in times)


@contextlib.contextmanager
def start(peer: str, folder: Path, backend: int) -> Iterator[tuple[psutil.Process | None, int]]:
    """Run one peer in front of the backend's port."""
    if peer == "direct":
        yield None, backend
        return
    if peer == "nginx":
        with nginx(folder, "proxy", PROXY, backend=backend) as started:
            yield started
        return
    port = free_port()
    argv = PEERS[peer].command.format(port=port, backend=backend, spare=free_port()).split()
    program = Path(sys.executable).with_name(argv[0])
    with running([str(program), *argv[1:]], port) as process:
        yield process, port


@contextlib.contextmanager
def nginx(folder: Path, name: str, body: str, **values: object) -> Iterator[tuple[psutil.Process, int]]:
    """Run an nginx with one worker."""
    port = free_port()
    config = folder / f"{name}.conf"
    config.write_text(NGINX.format(folder=folder, name=name, body=body.format(port=port, **values)))
    with running(["nginx", "-c", str(config)], port) as process:
        yield process, port


@contextlib.contextmanager
def running(argv: list[str], port: int, within_s: float = 30.0) -> Iterator[psutil.Process]:
    """Start a server, wait until it listens, end it."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        give_up = time.monotonic() + within_s
        while not listens(port):
            if process.poll() is not None or time.monotonic() > give_up:
                sys.exit(f"{' '.join(argv)}: did not listen on port {port}")
            time.sleep(0.05)
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def stress(folder: Path) -> Table:
    """1,500 concurrent requests of one second, and 20 concurrent answers of 8 MiB, through each router."""
    rows = Table("router", "1,500 x 1 s: wall s", "errors", "20 x 8 MiB: wall s", "errors ", title="Many and large")
    big = ANSWER.replace("a" * 1900, "a" * (8 << 20)).encode()

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        if request.path.endswith("/responses"):
            return web.Response(body=big, content_type="application/json")
        await asyncio.sleep(1.0)
        return web.Response(body=ANSWER.encode(), content_type="application/json")

    app = web.Application()
    app.router.add_post("/v1/{path:.*}", answer)
    app.router.add_get("/{path:.*}", lambda _request: _ok())
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    backend = runner.addresses[0][1]
    try:
        for peer in list(PEERS)[1:]:
            manager = start(peer, folder, backend)
            _, port = await asyncio.to_thread(manager.__enter__)
            try:
                slow = await burst(f"http://127.0.0.1:{port}{PATH}", PEERS[peer], 1500)
                large = await burst(f"http://127.0.0.1:{port}/v1/responses", PEERS[peer], 20)
            finally:
                await asyncio.to_thread(manager.__exit__, None, None, None)
            rows.add_row(peer, f"{slow[0]:.1f}", str(slow[1]), f"{large[0]:.1f}", str(large[1]))
    finally:
        await runner.cleanup()
    return rows


async def _ok() -> web.Response:
    return web.json_response({})


async def burst(url: str, peer: Peer, count: int) -> tuple[float, int]:
    """Send `count` requests at once; the wall time in seconds and the number that got no whole 200."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def one() -> bool:
            try:
                async with session.post(url, data=REQUEST, headers=peer.headers) as response:
                    return response.ok and len(await response.read()) >= len(ANSWER)
            except (aiohttp.ClientError, TimeoutError):
                return False

        began = time.monotonic()
        good = sum(await asyncio.gather(*(one() for _ in range(count))))
        return time.monotonic() - began, count - good


def table(samples: dict[str, list[Sample]]) -> Table:
    """One row a peer: median (lowest-highest)."""
    rows = Table("", "requests/s", "CPU s / 1000", "p50 ms", "p99 ms", "errors", title="Routed requests")
    for peer, taken in samples.items():
        columns = [
            _spread([sample.requests_per_s for sample in taken], 0),
            _spread([sample.cpu_s_per_1000 for sample in taken], 3),
            _spread([sample.p50_ms for sample in taken], 1),
            _spread([sample.p99_ms for sample in taken], 1),
        ]
        rows.add_row(peer, *columns, str(sum(sample.errors for sample in taken)))
    return rows


def _spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def _find(pattern: str, text: str, default: str | None = None) -> str:
    match = re.search(pattern, text)
    if match:
        return match.group(1)
    if default is None:
        sys.exit(f"wrk reported no {pattern!r}:\n{text}")
    return default


def _milliseconds(text: str) -> float:
    for unit, factor in (("us", 0.001), ("ms", 1.0), ("s", 1000.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    return float(text)


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether something accepts on the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    main()
