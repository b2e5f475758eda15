"""Where the lab's processes are in the cgroup tree, on v1, v2 and hybrid machines.

The lab has a cgroup namespace whose root is `Instance.cgroup` in every hierarchy, so that what containerd creates below
`/k8s.io` carries the instance's id outside, and two labs never share a cgroup. The supervisor and its parts live in the
child `parts`, because on v2 a cgroup with processes of its own cannot hand controllers down. v1 and hybrid are tested;
v2 is written from the kernel's documentation and has not been run.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from lab.linux import kernel

PARTS = "parts"
ROOT = Path("/sys/fs/cgroup")
_NOT_CONTROLLERS = ("rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode", "release_agent=")
_V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")


@dataclass(frozen=True)
class Hierarchy:
    """One mounted cgroup tree.

    Attributes:
        mountpoint: Where this process sees it.
        kind: `cgroup` (v1) or `cgroup2`.
        options: Mount data of a v1 tree (`cpu,cpuacct`, `none,name=systemd`); empty on v2.
    """

    mountpoint: Path
    kind: str
    options: str = ""


def parse_mountinfo(text: str) -> tuple[Hierarchy, ...]:
    """Cgroup mounts in the text of `/proc/self/mountinfo`; format: proc_pid_mountinfo(5)."""
    found = []
    for line in text.splitlines():
        mount, _, filesystem = line.partition(" - ")
        kind, _, super_options = filesystem.split(" ", 2)
        mountpoint = Path(mount.split(" ")[4])
        if kind == "cgroup":
            words = [word for word in super_options.split(",") if not word.startswith(_NOT_CONTROLLERS)]
            named = any(word.startswith("name=") for word in words)
            found.append(Hierarchy(mountpoint, kind, ",".join(["none", *words] if named else words)))
        elif kind == "cgroup2":
            found.append(Hierarchy(mountpoint, kind))
    return tuple(found)


def hierarchies() -> tuple[Hierarchy, ...]:
    """What is mounted here."""
    return parse_mountinfo(Path("/proc/self/mountinfo").read_text())


def enter(name: str) -> None:
    """Make `name` the root of this process's new cgroup namespace, then move to the child `parts` of it.

    Must run before the first part starts; raises OSError when a hierarchy refuses.
    """
    trees = hierarchies()
    for tree in trees:
        if tree.kind == "cgroup2":
            _delegate(tree.mountpoint)
        _join(tree, tree.mountpoint / name)
    kernel.unshare(kernel.CLONE_NEWCGROUP)
    for tree in trees:
        home = tree.mountpoint / name
        _join(tree, home / PARTS)
        if tree.kind == "cgroup2":
            _delegate(home)  # only now: the kernel refuses while a process is in it


def _join(tree: Hierarchy, path: Path) -> None:
    """Make the cgroup `path` and move this process there."""
    path.mkdir(exist_ok=True)
    if "cpuset" in tree.options.split(","):
        for setting in ("cpuset.cpus", "cpuset.mems"):  # empty in a new v1 cpuset, and an empty one takes no process
            (path / setting).write_text((path.parent / setting).read_text())
    (path / "cgroup.procs").write_text("0")


def _delegate(path: Path) -> None:
    """Hand every controller that `path` has on to its children (v2)."""
    available = (path / "cgroup.controllers").read_text().split()
    wanted = " ".join(f"+{controller}" for controller in _V2_CONTROLLERS if controller in available)
    if wanted:
        (path / "cgroup.subtree_control").write_text(wanted)


def mount(trees: tuple[Hierarchy, ...]) -> None:
    """Mount `trees` anew, as the cgroup namespace shows them; call after a fresh `/sys` has covered the old mounts."""
    if not any(tree.mountpoint == ROOT for tree in trees):
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        kernel.mount("tmpfs", ROOT, "tmpfs", flags=flags, data="mode=755")
    for tree in trees:
        tree.mountpoint.mkdir(parents=True, exist_ok=True)
        kernel.mount(tree.kind, tree.mountpoint, tree.kind, data=tree.options)
        for link in links(tree):
            link.symlink_to(tree.mountpoint.name)


def links(tree: Hierarchy) -> tuple[Path, ...]:
    """Other names of a v1 tree with several controllers: distributions link `cpu` and `cpuacct` to `cpu,cpuacct`."""
    controllers = tree.options.split(",")
    if tree.kind != "cgroup" or "none" in controllers or len(controllers) == 1:
        return ()
    return tuple(tree.mountpoint.parent / controller for controller in controllers)


def directories(name: str) -> tuple[Path, ...]:
    """Existing cgroup directories of `name` in every hierarchy, deepest first."""
    found: list[Path] = []
    for tree in hierarchies():
        home = tree.mountpoint / name
        if home.is_dir():
            found += [Path(directory) for directory, _, _ in os.walk(home, topdown=False)]
    return tuple(found)


def sweep(name: str, *, timeout_seconds: float = 5.0) -> None:
    """Remove the empty cgroups of `name`.

    The kernel lets go of a cgroup a moment after its last process, hence the retries. Raises OSError for one that
    stays busy.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        busy: OSError | None = None
        for directory in directories(name):
            try:
                directory.rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                busy = error
        if busy is None:
            return
        if time.monotonic() > deadline:
            raise busy
        time.sleep(0.05)
