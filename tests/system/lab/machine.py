"""What of a lab could still be on the machine after its end."""

import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.linux import cgroups, isolation
from lab.node import ports
from lab.paths import Instance


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    start: str

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """The process `pid`, when there is one."""
        try:
            return cls(pid, Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])
        except (FileNotFoundError, ProcessLookupError):
            return None

    @property
    def alive(self) -> bool:
        """Whether it is still there."""
        return Process.of(self.pid) == self


def mentions(instance: Instance) -> list[str]:
    """Processes whose command line or environment names the instance, this one's ancestors and itself left out."""
    marks = (str(instance.state).encode(), str(instance.run).encode(), f"LLM_D_LAB_INSTANCE={instance.id}\0".encode())
    own, pid = set(), os.getpid()
    while pid:
        own.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit() or int(directory.name) in own:
            continue
        try:
            command = (directory / "cmdline").read_bytes()
            text = command + (directory / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if any(mark in text for mark in marks):
            found.append(f"{directory.name} {command.replace(bytes(1), b' ').decode(errors='replace')}")
    return found


def mounts(instance: Instance) -> list[str]:
    """Mounts of this mount namespace that show or hide something of the instance."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if f"llm-d-lab/{instance.id}" in line]


def links() -> set[str]:
    """Network links of this network namespace that a lab makes."""
    names = {path.name for path in Path("/sys/class/net").iterdir()}
    return {name for name in names if name.startswith(("lab", "veth"))}


def rules() -> set[str]:
    """Packet filter rules of this network namespace that Kubernetes or CNI makes."""
    saved = subprocess.run(["iptables-save"], check=True, capture_output=True, text=True).stdout
    return {line for line in saved.splitlines() if "KUBE-" in line or "CNI-" in line}


def kernel_settings() -> dict[str, str]:
    """Machine-wide parameters that a kubelet would change."""
    paths = {name: Path("/proc/sys") / name for name in isolation.KUBELET_SYSCTLS}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}


def taken_ports(instance: Instance) -> list[int]:
    """Ports of the instance on which someone listens."""
    taken = []
    for port in ports.wanted(instance):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                taken.append(port)
    return taken


def named_namespaces() -> set[str]:
    """Network namespaces that someone gave a name."""
    directory = Path("/run/netns")
    return {path.name for path in directory.iterdir()} if directory.is_dir() else set()


def directories(instance: Instance) -> list[Path]:
    """State, sockets and cgroups."""
    return [path for path in (instance.state, instance.run) if path.exists()] + list(
        cgroups.directories(instance.cgroup)
    )
