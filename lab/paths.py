"""Where an instance of the lab keeps its things, and which ports it takes.

Every path, port and cgroup carries the instance's id, so that two labs on one machine never meet.
"""

import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

CHECKOUT = Path(__file__).resolve().parent.parent
STATE_ROOT = Path("/var/lib/llm-d-lab")
RUN_ROOT = Path("/run/llm-d-lab")
DEFAULT_ID = "dev"

# In the environment of every process of a lab, so that it can be told whose it is.
INSTANCE_VARIABLE = "LLM_D_LAB_INSTANCE"

_ID = re.compile(r"[a-z][a-z0-9]{0,7}")  # short, because unix socket paths end at 107 bytes and link names at 15

NODE_PORTS = tuple(range(30080, 30096))  # inside the lab; each is forwarded to loopback outside

_DEFAULT_BASE = 26000  # below 30000 (NodePorts) and 32768 (where Linux starts to hand out ephemeral ports)
_BLOCK = 20  # one API port, 16 NodePort forwards, three spare
_BLOCKS = 199  # 26020 … 29999


class InstanceIdError(LabError):
    """An instance id that cannot be part of a path, a socket, a link and a host name."""


def cache_root() -> Path:
    """Built tools and images, shared by every checkout of this user: `${XDG_CACHE_HOME:-~/.cache}/llm-d-lab`."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "llm-d-lab"


@dataclass(frozen=True)
class Instance:
    """One lab on this machine.

    Attributes:
        id: One letter, then up to seven letters or digits, lower case.
    """

    id: str = DEFAULT_ID

    def __post_init__(self) -> None:
        """Refuse an id that would not fit everywhere it is used."""
        if not _ID.fullmatch(self.id):
            raise InstanceIdError(
                f"instance {self.id!r}: an id is a letter and up to seven letters or digits, lower case ({_ID.pattern})"
            )

    @property
    def state(self) -> Path:
        """What outlives a run: certificates, etcd, images, volumes, logs, kubeconfig."""
        return STATE_ROOT / self.id

    @property
    def run(self) -> Path:
        """What ends with a run: sockets, pid and lock files."""
        return RUN_ROOT / self.id

    @property
    def kubeconfig(self) -> Path:
        """Cluster administrator's kubeconfig, for use from outside the lab (loopback)."""
        return self.state / "kubeconfig"

    @property
    def cgroup(self) -> str:
        """Name of the cgroup, under every controller's root, below which all of the lab's pods live."""
        return f"llm-d-lab-{self.id}"

    @property
    def node(self) -> str:
        """Name of the one node."""
        return f"lab-{self.id}"

    @property
    def port_base(self) -> int:
        """First port of the instance's block on loopback.

        `dev` has a fixed one, so that documentation can name it. The others follow from their id; two ids may share a
        block (one in 199), and then the second lab's forwarder says which port is taken.
        """
        if self.id == DEFAULT_ID:
            return _DEFAULT_BASE
        return _DEFAULT_BASE + _BLOCK * (1 + zlib.crc32(self.id.encode()) % _BLOCKS)

    @property
    def api_port(self) -> int:
        """Port on loopback that reaches the API server."""
        return self.port_base

    @property
    def forwards(self) -> dict[int, int]:
        """NodePort inside → port on loopback outside, for each of `NODE_PORTS`."""
        return {node_port: self.port_base + 1 + index for index, node_port in enumerate(NODE_PORTS)}
