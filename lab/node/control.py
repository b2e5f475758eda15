"""How a command outside talks to a running supervisor: one JSON line each way over a unix socket.

The socket's peer credentials say which process of the machine the supervisor is, so no PID file can lie.
"""

import json
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.node.records import PartRecord
from lab.paths import Instance

_UCRED = struct.Struct("3i")  # pid, uid, gid; unix(7)


class NotRunningError(LabError):
    """Nobody listens: the lab is down, or its supervisor was killed."""


def socket_path(instance: Instance) -> Path:
    """Where the supervisor listens."""
    return instance.run / "control.sock"


@dataclass(frozen=True)
class Control:
    """A running supervisor.

    Attributes:
        instance: Its lab.
        timeout_seconds: For every answer.
    """

    instance: Instance
    timeout_seconds: float = 10.0

    def pid(self) -> int:
        """The supervisor's process in the caller's PID namespace; raises NotRunningError."""
        with self._connect() as connection:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        return _UCRED.unpack(credentials)[0]

    def parts(self) -> tuple[PartRecord, ...]:
        """Every part, probed at this moment."""
        return tuple(PartRecord.from_json(record) for record in self._ask({"do": "status"})["parts"])

    def start_dead(self) -> tuple[str, ...]:
        """Start every dead part again; returns their names."""
        return tuple(self._ask({"do": "start-dead"})["started"])

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self.timeout_seconds)
        try:
            connection.connect(str(socket_path(self.instance)))
        except OSError as error:
            connection.close()
            raise NotRunningError(f"lab {self.instance.id!r} is not running") from error
        return connection

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._connect() as connection:
            try:
                connection.sendall(json.dumps(request).encode() + b"\n")
                with connection.makefile() as answers:
                    line = answers.readline()
            except OSError as error:
                raise NotRunningError(f"lab {self.instance.id!r}: its supervisor does not answer ({error})") from error
        if not line:
            raise NotRunningError(f"lab {self.instance.id!r} ended while it was asked")
        return json.loads(line)
