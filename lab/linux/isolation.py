"""What the lab's mount namespace hides from the machine, so that the lab's end leaves no file, setting or mount behind.

The parts write to fixed places (`/run/netns`, `/run/xtables.lock`, `/var/lib/cni`, `/var/log/containers`) and the
kubelet sets kernel parameters of the whole machine. All of that happens on mounts which only the lab sees.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.linux import cgroups, kernel

COVERED = (Path("/run"), Path("/var/lib"))

# What the kubelet sets at start (pkg/kubelet/cm/container_manager_linux.go), all of it machine-wide.
KUBELET_SYSCTLS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


def kept(paths: Iterable[Path], covered: Path) -> tuple[Path, ...]:
    """Those of `paths` that lie under `covered` and must stay visible, outermost only."""
    inside = sorted({path for path in paths if path.is_relative_to(covered) and path != covered})
    return tuple(path for path in inside if not any(path != other and path.is_relative_to(other) for other in inside))


@dataclass(frozen=True)
class Visible:
    """Directories that the parts need although a cover would hide them: state, sockets, programs, the checkout."""

    state: Path
    run: Path
    others: tuple[Path, ...]


def isolate(cgroup: str, visible: Visible) -> None:
    """Turn a fresh mount, network and PID namespace into the lab's; raises OSError naming the mount that failed."""
    kernel.mount(
        "none", Path("/"), flags=kernel.MS_REC | kernel.MS_SHARED
    )  # volumes of pods must propagate to the kubelet
    cgroups.enter(cgroup)
    trees = cgroups.hierarchies()
    kernel.mount("sysfs", Path("/sys"), "sysfs", flags=kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    cgroups.mount(trees)
    for path in COVERED:
        _cover(path, kept((visible.state, visible.run, *visible.others), path))
    _bind(visible.state / "log", Path("/var/log"))
    for name in KUBELET_SYSCTLS:
        _shield(Path("/proc/sys") / name, visible.state / "sysctl" / name.replace("/", "."))


def _bind(source: Path | str, target: Path) -> None:
    kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)


def _cover(path: Path, visible: tuple[Path, ...]) -> None:
    """Put an empty file system over `path`, through which only `visible` shows."""
    handles = {keep: os.open(keep, os.O_PATH | os.O_DIRECTORY) for keep in visible}
    try:
        kernel.mount("tmpfs", path, "tmpfs", flags=kernel.MS_NOSUID | kernel.MS_NODEV, data="mode=755")
        for keep, handle in handles.items():
            keep.mkdir(parents=True, exist_ok=True)
            _bind(f"/proc/self/fd/{handle}", keep)
    finally:
        for handle in handles.values():
            os.close(handle)


def _shield(setting: Path, stand_in: Path) -> None:
    """Let the lab read and write a file of its own instead of a kernel parameter."""
    if not setting.exists():
        return
    stand_in.parent.mkdir(parents=True, exist_ok=True)
    stand_in.write_text(setting.read_text())
    _bind(stand_in, setting)
