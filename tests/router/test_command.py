"""`gym-router` as a process: bad input, signals, logs, the event log."""

import contextlib
import http.client
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import orjson
import pytest
from typer.testing import CliRunner

from gymproof.router.cli import app, effective_config
from gymproof.router.config import ConfigError, HealthMode, make_config, read_file
from gymproof.router.events import LOG
from gymproof.router.parts import endpoints_for

START_S = 30.0


def command(*arguments):
    return [sys.executable, "-c", "from gymproof.router.cli import main; main()", "serve", *arguments]


class SlowServer:
    """Answers every POST after a while; counts what it was asked."""

    def __init__(self, delay_s):
        self.delay_s = delay_s
        self.asked = threading.Semaphore(0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(peer,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, peer):
        with peer:
            peer.settimeout(20)
            if not peer.recv(65536).startswith(b"POST"):
                peer.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            self.asked.release()
            time.sleep(self.delay_s)
            body = b'{"choices":[]}'
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body))


@contextlib.contextmanager
def running(*arguments, host="127.0.0.1"):
    process = subprocess.Popen(
        command("--port", "0", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(START_S, process.kill)
    watchdog.start()
    try:
        line = process.stdout.readline()
        found = re.search(rf"http://{re.escape(host)}:(\d+)/v1", line)
        assert found, line + process.stderr.read()
        yield process, int(found[1])
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def ask(port, results, host="127.0.0.1"):
    connection = http.client.HTTPConnection(host, port, timeout=20)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/chat/completions", b"{}")
        results.append(connection.getresponse().status)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_every_request_in_flight_finish(number, tmp_path):
    log = tmp_path / "events.jsonl"
    results = []
    with (
        SlowServer(0.6) as server,
        running("--backend", f"http://127.0.0.1:{server.port}", "--event-log", log) as (
            process,
            port,
        ),
    ):
        asking = [threading.Thread(target=ask, args=(port, results)) for _ in range(10)]
        for thread in asking:
            thread.start()
        for _ in asking:
            assert server.asked.acquire(timeout=10)
        process.send_signal(number)
        for thread in asking:
            thread.join(20)
        assert process.wait(10) == 0
    events = [orjson.loads(line) for line in log.read_bytes().splitlines()]

    assert results == [200] * 10
    assert [events[0]["event"], events[-1]["event"]] == ["start", "stop"]
    assert events[-1]["clean"]
    assert sum(event["event"] == "answer" and event["status"] == 200 for event in events) == 10
    assert all({"mono", "t", "event"} <= event.keys() for event in events)
    attempts = [event for event in events if event["event"] == "attempt"]
    assert {"request", "shard", "failure", "reached", "reused", "status", "elapsed_s", "reason"} <= attempts[0].keys()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait_and_says_what_it_drops(number):
    results = []
    with SlowServer(5.0) as server, running("--backend", f"http://127.0.0.1:{server.port}") as (process, port):

        def hopeful():
            with contextlib.suppress(OSError, http.client.HTTPException):
                ask(port, results)

        thread = threading.Thread(target=hopeful)
        thread.start()
        assert server.asked.acquire(timeout=10)
        process.send_signal(signal.SIGTERM)
        read_until(process.stderr, "draining: 1 requests in flight")
        process.send_signal(number)
        assert process.wait(4) == 128 + number
        assert "stopped by a second signal: 1 requests dropped" in process.stderr.read()
        thread.join(10)

    assert results == []


def read_until(stream, text):
    """Read lines until one has `text`; the process's watchdog bounds it."""
    lines = []
    while text not in "".join(lines[-1:]):
        lines.append(stream.readline())
        assert lines[-1], f"ended without {text!r}: {lines}"


@pytest.mark.parametrize(
    ("arguments", "where", "value", "right"),
    [
        ("--port 0", "no backend", "", "give --backend URL"),
        ("--backend host:1", "--backend:", "'host:1'", "http"),
        ("--backend http://h --no-healthy-backend-status 503", "--no-healthy-backend-status:", "503", "without bound"),
        ("--backend http://h --health sometimes", "--health:", "'sometimes'", "'self', 'pushed' or 'off'"),
        ("--backend http://h --backend-timeout-s 2 --connect-timeout-s 3", "--connect-timeout-s:", "3.0", "at most 2 "),
        ("--backend http://h --backend-timeout-s 0", "--backend-timeout-s:", "0.0", "greater than 0"),
        ("--backend http://h --backend-timeout-s inf", "--backend-timeout-s:", "inf", "no deadline at all; a finite"),
        ("--backend http://h --probe-timeout-s inf", "--probe-timeout-s:", "inf", "no deadline at all; a finite"),
        ("--backend http://h --no-shard-hold-s inf", "--no-shard-hold-s:", "inf", "no deadline at all; a finite"),
        ("--backend http://h --stall-after-s inf", "--stall-after-s:", "inf", "no deadline at all; a finite"),
        ("--backend http://h --client-idle-s nan", "--client-idle-s:", "nan", "greater than 0"),
        ("--backend http://h --policy best", "--policy:", "'best'", "known: session, consistent_hash"),
        ("--backend http://h --port 70000", "--port:", "70000", "less than or equal to 65535"),
        ("--backend http://h --host 192.0.2.1 --port 0", "--host:", "192.0.2.1", "an address of this machine"),
        ("--backend http://h --config /no/such.toml", "--config:", "/no/such.toml", "No such file"),
        ("--backend http://h --config {folder}/f.toml", "f.toml: no_shard_hold:", "7", "there is no_shard_hold_s"),
        ("--config {folder}/h.toml", "h.toml: backend:", "'http://h'", "there is backends ("),
        ("--backend http://h --config {folder}/i.yml", "i.yml: backend-timeout-s:", "7", "is backend_timeout_s ("),
        ("--backend http://h --config {folder}/j.toml", "j.toml: port:", "True", "must not be true or false"),
        ("--backend http://h --config {folder}/k.yaml", "k.yaml: health:", "False", "off has to be in quotes"),
        ("--backend http://h --config {folder}/l.yaml", "--config:", "'port' is there twice", "line 3"),
        ("--backend http://h --config {folder}/list", "--config:", "list", "one of .toml, .yaml, .yml"),
        ("--backend http://h --config {folder}/g.yaml", "g.yaml: eject_after:", "0", "greater than or equal to 1"),
        ("--backends-file /no/such/list", "--backends-file:", "/no/such/list", "No such file"),
        ("--backends-file {folder}/list", "--backends-file:", "list:2: backend URL 'nowhere'", "http"),
        ("--backends-file {folder}/list --backend http://h", "--backends-file:", "", "one of the two"),
        ("--backends-file {folder}/empty", "--backends-file:", "empty", "one URL a line"),
        ("--backend http://h --admin-port 0 --admin-token-file {folder}/empty", "--admin-token-file:", "empty", "line"),
        (
            "--backend http://h --admin-token-file {folder}/list",
            "--admin-token-file:",
            "list",
            "an admin port beside it",
        ),
        ("--backend http://h --event-log /no/such/log", "--event-log:", "/no/such/log", "a folder that exists"),
        ("--backend http://h --max-in-flight 100000000", "--max-in-flight:", "100000000", "open files"),
    ],
)
def test_bad_input_ends_with_code_2_and_says_what_where_and_what_would_be_right(
    tmp_path, monkeypatch, arguments, where, value, right
):
    for name, state in {"handlers": [], "level": LOG.level, "propagate": LOG.propagate}.items():
        monkeypatch.setattr(LOG, name, state)
    (tmp_path / "f.toml").write_text("no_shard_hold = 7\n")
    (tmp_path / "g.yaml").write_text("eject_after: 0\n")
    (tmp_path / "h.toml").write_text('backend = "http://h"\n')
    (tmp_path / "i.yml").write_text("backend-timeout-s: 7\n")
    (tmp_path / "j.toml").write_text("port = true\n")
    (tmp_path / "k.yaml").write_text("health: off\n")
    (tmp_path / "l.yaml").write_text("port: 1\nhost: h\nport: 2\n")
    (tmp_path / "list").write_text("http://a\nnowhere\n")
    (tmp_path / "empty").write_text("\n")
    done = CliRunner().invoke(app, ["serve", *arguments.format(folder=tmp_path).split()])

    assert done.exit_code == 2
    assert where in done.stderr
    assert value in done.stderr
    assert right in done.stderr
    assert done.stderr.endswith("\n")


def test_bad_input_to_the_process_is_one_line_and_code_2():
    arguments = command("--backend", "http://h", "--backend-timeout-s", "2", "--connect-timeout-s", "3")
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=START_S, check=False)

    assert done.returncode == 2
    assert re.fullmatch(r"gym-router: --connect-timeout-s: .* at most 2 would be right \(got 3\.0\)\n", done.stderr)


def test_a_taken_port_ends_with_code_2_and_names_the_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = command("--backend", "http://h", "--port", port)
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=START_S, check=False)

    assert done.returncode == 2
    assert f"--port: cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "would be right\n" in done.stderr


@pytest.mark.parametrize("url", ["http://me:s3cret@h", "me:s3cret@h:1", "http://me:s3/cret@h", "http://me:s3cret@[::1"])
def test_a_password_is_not_repeated(tmp_path, url):
    path = tmp_path / "list"
    path.write_text(f"http://a\n{url}\n")
    for key, value in {"backends": ("http://a", url), "backends_file": path}.items():
        with pytest.raises(ConfigError, match=r"\*\*\*@") as refused:
            endpoints_for(make_config({key: value}))

        assert "s3" not in str(refused.value).replace(str(tmp_path), "")
        assert "cret" not in str(refused.value)


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_address_is_in_brackets_in_the_url(host):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with running("--backend", "http://127.0.0.1:1", "--host", host, "--health", "off", host="[::1]") as (_, port):
        results = []
        ask(port, results, "::1")

    assert results == [500]


def test_the_start_is_logged_with_the_backends_of_the_file(tmp_path):
    path = tmp_path / "list"
    path.write_text("http://127.0.0.1:1\nhttp://127.0.0.1:2/v1\n")
    with running("--backends-file", str(path), "--log-format", "json") as (process, _):
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
    lines = [orjson.loads(line) for line in errors.splitlines()]

    serving = next(line for line in lines if line["message"] == "serving")
    assert serving["backends"] == ["http://127.0.0.1:1", "http://127.0.0.1:2/v1"]


def test_logs_can_be_json_with_one_line_a_failed_attempt():
    with running("--backend", "http://127.0.0.1:1", "--log-format", "json", "--health", "off") as (process, port):
        results = []
        ask(port, results)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
    lines = [orjson.loads(line) for line in errors.splitlines()]
    failed = [line for line in lines if line["message"] == "attempt failed"]

    assert results == [500]
    assert len(failed) == 1
    assert (failed[0]["failure"], failed[0]["reached"]) == ("unreachable", "none")
    assert next(line for line in lines if line["message"] == "serving")["backend_timeout_s"] == 600.0


@pytest.mark.parametrize("suffix", ["toml", "yaml"])
def test_a_file_holds_the_same_keys_and_options_win(tmp_path, suffix):
    path = tmp_path / f"router.{suffix}"
    path.write_text(
        'backends = ["http://a"]\nport = 1\nhealth = "off"\n'
        if suffix == "toml"
        else "backends: ['http://a']\nport: 1\nhealth: 'off'\n"
    )
    in_file = read_file(path)
    config = effective_config({"port": 2}, in_file, str(path))

    assert (config.backends, config.port, config.health) == (("http://a",), 2, HealthMode.OFF)
    assert effective_config({"backends": ("http://b",)}, in_file, str(path)).backends == ("http://b",)


@pytest.mark.parametrize("text", ["not toml", "unknown_key = 1"])
def test_a_bad_file_is_refused_by_name(tmp_path, text):
    path = tmp_path / "router.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"router\.toml"):
        effective_config({"backends": ("http://a",)}, read_file(path), str(path))


@pytest.mark.parametrize(("budget_s", "connect_s"), [(2.0, 2.0), (30.0, 5.0)])
def test_a_connect_timeout_that_nobody_gave_fits_the_budget(budget_s, connect_s):
    config = make_config({"backends": ("http://a",), "backend_timeout_s": budget_s})

    assert config.connect_timeout_s == connect_s


def test_the_command_needs_none_of_the_extras():
    code = "import gymproof.router.cli, sys; assert not {'ray', 'pytest', 'nemo_gym', 'toxiproxy'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=START_S, check=False)

    assert done.returncode == 0, done.stderr
