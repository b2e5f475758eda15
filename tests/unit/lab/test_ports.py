"""Taking the loopback ports of a lab."""

import socket

import pytest

from lab.node import ports
from lab.paths import Instance


@pytest.fixture
def two_ports():
    """Two free ports, the second one taken."""
    with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as taken:
        number = free.getsockname()[1]
        free.close()
        yield number, taken.getsockname()[1]


def test_a_lab_wants_its_api_port_and_one_port_for_each_node_port():
    wanted = ports.wanted(Instance("t9"))
    assert len(wanted) == len(set(wanted)) == 17
    assert wanted[0] == Instance("t9").api_port


def test_a_taken_port_is_named_and_the_others_are_given_back(two_ports):
    free, taken = two_ports
    with pytest.raises(ports.PortTakenError, match=f"port {taken} on 127.0.0.1 is taken"):
        ports.listen([free, taken])
    with socket.create_server(("127.0.0.1", free)) as again:
        assert again.getsockname()[1] == free


def test_sockets_listen_on_loopback_alone(two_ports):
    free, _ = two_ports
    listeners = ports.listen([free])
    with listeners[free] as listener, socket.create_connection(("127.0.0.1", free), timeout=5):
        assert listener.getsockname() == ("127.0.0.1", free)
