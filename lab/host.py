"""Whether this machine can run a lab: one sentence when it cannot, before anything is built or started.

Standard library only: `python -m lab.host` runs before there is an environment.
"""

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from lab import debian_packages
from lab.errors import LabError

ELSEWHERE = "On any other machine use a cluster of your own: docs/bring-your-own-cluster.md"

PROGRAMS = ("unshare", "nsenter", "ip", "iptables", "ip6tables", "conntrack", "runc")
CNI_PLUGINS = ("ptp", "host-local", "portmap", "loopback")
_CNI_DIRECTORIES = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))


class HostError(LabError):
    """The machine cannot run a lab; the message says why and what to do instead."""


@dataclass(frozen=True)
class Host:
    """Programs of the machine that the lab uses.

    Attributes:
        programs: Name → absolute path.
        cni_plugins: Directory of the CNI plugins.
    """

    programs: dict[str, Path]
    cni_plugins: Path


def refusal(system: str, user_id: int) -> str | None:
    """Why a machine with this `platform.system()` and effective user cannot run a lab; None when it can."""
    if system != "Linux":
        return f"the lab needs Linux namespaces and this is {system}. {ELSEWHERE}"
    if user_id != 0:
        return f"the lab needs root (it makes namespaces, mounts and cgroups); run it with sudo. {ELSEWHERE}"
    return None


def require_root() -> None:
    """Raise HostError where there can be no lab at all."""
    reason = refusal(platform.system(), os.geteuid())
    if reason:
        raise HostError(reason)


def check() -> Host:
    """The machine's programs; raises HostError when it cannot run a lab."""
    require_root()
    found = {name: shutil.which(name) for name in PROGRAMS}
    directory = next((path for path in _CNI_DIRECTORIES if all((path / name).exists() for name in CNI_PLUGINS)), None)
    missing = [name for name, path in found.items() if path is None]
    if directory is None:
        missing.append(f"the CNI plugins {', '.join(CNI_PLUGINS)}")
    if missing or directory is None:
        packages = " ".join(debian_packages.needed())
        raise HostError(
            f"the lab needs {', '.join(missing)}. "
            f"On Debian: apt-get install --no-install-recommends {packages}. {ELSEWHERE}"
        )
    return Host({name: Path(path) for name, path in found.items() if path}, directory)


if __name__ == "__main__":
    try:
        require_root()
    except HostError as error:
        sys.exit(f"error: {error}")
