"""How to start a process tree in a lab's namespaces, and how to enter them."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.paths import CHECKOUT, INSTANCE_VARIABLE, Instance

_UNSHARE = ("unshare", "--pid", "--mount", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc")
_ENTER = ("--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup")


def start(instance: Instance, alive: int, listeners: Mapping[int, int], log: Path) -> subprocess.Popen[bytes]:
    """Start a supervisor as PID 1 of new namespaces; returns its parent `unshare`: when one of them ends, both do."""
    command = [*_UNSHARE, sys.executable, "-m", "lab.node.supervisor", "--instance", instance.id, "--alive", str(alive)]
    command += [word for port, fd in listeners.items() for word in ("--listener", f"{port}={fd}")]
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), INSTANCE_VARIABLE: instance.id},
            pass_fds=(alive, *listeners.values()),
            start_new_session=True,
        )


def enter(pid: int, command: Sequence[str]) -> list[str]:
    """Command line that runs `command` in the namespaces of the supervisor `pid`."""
    return ["nsenter", f"--target={pid}", *_ENTER, "--", *command]


def end(pid: int, timeout_seconds: float) -> bool:
    """Kill the supervisor `pid` and wait until the kernel has ended everything in its PID namespace; False = too slow.

    The kernel reports the death of a namespace's PID 1 only after that of everyone else in it.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        gone = select.poll()
        gone.register(handle, select.POLLIN)
        return bool(gone.poll(timeout_seconds * 1000))
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)


def members(pid: int) -> dict[int, str]:
    """Every process of the lab whose supervisor is `pid` → its command's name, nested PID namespaces included.

    All descend from it: it is PID 1 of its namespace, so orphans become its children.
    """
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                head, _, tail = (directory / "stat").read_text().rpartition(") ")
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended while we looked
            parents[int(directory.name)] = int(tail.split()[1])
            names[int(directory.name)] = head.partition(" (")[2]
    found = {pid} & parents.keys()
    size = 0
    while len(found) != size:
        size = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return {member: names[member] for member in sorted(found)}


def memory_bytes(pids: Sequence[int]) -> int:
    """Proportional set size of `pids` together: pages shared by several count once."""
    total = 0
    for pid in pids:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        total += next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return total
