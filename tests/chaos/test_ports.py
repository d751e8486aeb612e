import socket

from gymproof.chaos.ports import PortLease


def test_two_leases_never_share_a_port():
    with PortLease() as one, PortLease() as other:
        assert one.port != other.port


def test_a_leased_port_can_be_bound_again_and_again():
    with PortLease() as lease:
        for _ in range(3):
            with (
                socket.create_server(("127.0.0.1", lease.port)) as server,
                socket.create_connection(server.getsockname()),
            ):
                pass


def test_a_released_port_is_free_for_others_and_releasing_twice_is_fine():
    lease = PortLease()
    lease.release()
    lease.release()

    with socket.create_server(("127.0.0.1", lease.port)):
        pass
