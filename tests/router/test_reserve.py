"""Ports that stay reserved while nobody listens on them."""

import socket
from contextlib import closing

import pytest

from gymproof.router.reserve import hold_port
from gymproof.router.sockets import bind


@pytest.fixture
def port() -> int:
    with closing(bind("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def only(port: int) -> range:
    return range(port, port + 1)


def test_the_router_listens_beside_the_hold_again_and_again(port: int):
    with hold_port("127.0.0.1", only(port)) as hold:
        for _ in range(3):
            with closing(bind("127.0.0.1", hold.port)), socket.create_connection(("127.0.0.1", port), 5.0):
                pass


def test_nobody_else_gets_the_port(port: int):
    with hold_port("127.0.0.1", only(port)), socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))


def test_two_drivers_take_two_ports(port: int):
    with hold_port("127.0.0.1", range(port, port + 20)) as one, hold_port("127.0.0.1", range(port, port + 20)) as two:
        assert one.port != two.port


def test_a_port_that_somebody_listens_on_is_passed_over(port: int):
    with closing(bind("127.0.0.1", port)), hold_port("127.0.0.1", range(port, port + 20)) as hold:
        assert hold.port != port


def test_the_remains_of_a_run_before_do_not_count(port: int):
    with closing(bind("127.0.0.1", port)) as listener:
        client = socket.create_connection(("127.0.0.1", port), 5.0)
        listener.setblocking(True)
        served, _ = listener.accept()
        served.close()  # the listener's side closes first, and is what stays in TIME_WAIT
        assert client.recv(1) == b""
        client.close()

    with hold_port("127.0.0.1", only(port)) as hold:
        assert hold.port == port


def test_no_port_in_the_range(port: int):
    with closing(bind("127.0.0.1", port)), pytest.raises(OSError, match=f"no port from {port} to {port} is free"):
        hold_port("127.0.0.1", only(port))


def test_an_address_that_is_not_ours():
    with pytest.raises(OSError, match="assign"):
        hold_port("203.0.113.1", range(20000, 20001))
