"""`gym-router` as a process: signals, logs, the event log, how it ends."""

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


def test_the_command_needs_none_of_the_extras():
    code = "import gymproof.router.cli, sys; assert not {'ray', 'pytest', 'nemo_gym', 'toxiproxy'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=START_S, check=False)

    assert done.returncode == 0, done.stderr
