"""Which loopback ports a lab takes, and who says so when one is taken already."""

import errno
import socket
from collections.abc import Iterable

from lab.errors import LabError
from lab.paths import Instance

_BACKLOG = 128


class PortTakenError(LabError):
    """Another program listens on a port that the lab needs; the message names it."""


def wanted(instance: Instance) -> tuple[int, ...]:
    """Every port of `instance` on loopback: the API server's first, then one for each NodePort."""
    return (instance.api_port, *instance.forwards.values())


def listen(ports: Iterable[int]) -> dict[int, socket.socket]:
    """Port → a socket that listens on it on loopback; all or none.

    Raises:
        PortTakenError: With the first port that is taken.
    """
    sockets: dict[int, socket.socket] = {}
    try:
        for port in ports:
            listener = socket.socket()
            sockets[port] = listener
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(_BACKLOG)
    except OSError as error:
        for listener in sockets.values():
            listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        taken = list(sockets)[-1]
        raise PortTakenError(
            f"port {taken} on 127.0.0.1 is taken by another program (`ss -ltnp sport = :{taken}` shows which); "
            "end it, or start the lab with another --instance"
        ) from None
    return sockets
