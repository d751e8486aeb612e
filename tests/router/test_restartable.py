"""A restarted router waits for its port, and otherwise ends its process; a first one raises."""

import http.client
import pickle
import subprocess
import sys
import time
from contextlib import closing

import pytest

from gymproof.router.config import ConfigError
from gymproof.router.restartable import EXIT_CODE, RestartableRouter
from gymproof.router.sockets import BindError, bind

SETTINGS = {
    "backend_urls": ["http://127.0.0.1:1/v1"],
    "host": "127.0.0.1",
    "backend_timeout_s": 5.0,
    "connect_timeout_s": 1.0,
    "no_healthy_backend_status": 409,
}
PROGRAM = """
import sys, time
from gymproof.router.restartable import RestartableRouter
router = RestartableRouter(restarted=True, settle_s=float(sys.argv[2]), port=int(sys.argv[1]), **{settings!r})
if sys.argv[3] == "stop":
    router._loop.call_soon_threadsafe(router._stop.set)
time.sleep(30)
"""


def restarted(port: int, settle_s: float, then: str = "serve") -> subprocess.Popen:
    program = PROGRAM.format(settings=SETTINGS)
    return subprocess.Popen(
        [sys.executable, "-c", program, str(port), str(settle_s), then], stderr=subprocess.PIPE, text=True
    )


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    try:
        connection.request("GET", "/nothing")
        return connection.getresponse().status == 404
    except OSError:
        return False
    finally:
        connection.close()


def test_a_first_one_raises_when_the_port_is_taken():
    with closing(bind("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="cannot listen on"):
        RestartableRouter(restarted=False, port=taken.getsockname()[1], **SETTINGS)


@pytest.mark.parametrize(
    ("wrong", "complaint"), [({"port": 1 << 16}, "65535"), ({"host": "192.0.2.1"}, "an address of this machine")]
)
def test_what_a_first_one_raises_reaches_another_process_whole(wrong: dict, complaint: str):
    """A holder in another process pickles it for its driver."""
    with pytest.raises((ConfigError, BindError), match=complaint) as raised:
        RestartableRouter(restarted=False, **{**SETTINGS, "port": 0, **wrong})
    arrived = pickle.loads(pickle.dumps(raised.value))

    assert type(arrived) is type(raised.value)
    assert (str(arrived), arrived.key) == (str(raised.value), raised.value.key)


def test_it_serves_from_its_constructor_on():
    with closing(RestartableRouter(restarted=False, port=0, **SETTINGS)) as router:
        assert router.is_serving()
        assert answers(router._port)


def test_each_instance_has_an_id_of_its_own():
    routers = [RestartableRouter(restarted=False, port=0, **SETTINGS) for _ in range(2)]
    one, two = (router.instance_id() for router in routers)
    for router in routers:
        router.close()

    assert one != two


def test_a_restarted_one_waits_for_its_port():
    with closing(bind("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = restarted(port, 30.0)
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(2.0)
            taken.close()
            last = time.monotonic() + 20.0
            while not answers(port):
                assert time.monotonic() < last, "the router does not take the free port within 20 s"
                time.sleep(0.05)
        finally:
            process.kill()
            process.communicate()


def test_a_restarted_one_ends_its_process_after_the_bound():
    with closing(bind("127.0.0.1", 0)) as taken:
        process = restarted(taken.getsockname()[1], 0.5)
        _, said = process.communicate(timeout=30.0)

    assert process.returncode == EXIT_CODE
    assert "cannot listen on 127.0.0.1" in said


def test_the_end_of_the_serving_thread_ends_the_process():
    process = restarted(0, 5.0, "stop")
    _, said = process.communicate(timeout=30.0)

    assert process.returncode == EXIT_CODE
    assert "the router's thread has ended" in said


def test_a_closed_one_leaves_the_process_alone():
    router = RestartableRouter(restarted=False, port=0, **SETTINGS)
    router.close()

    assert not router.is_serving()
