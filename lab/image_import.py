"""Which of the lab's images its node has, and how the missing ones get there."""

import json
import subprocess
from collections.abc import Iterable, Sequence

from lab import namespaces, node_config
from lab.image_build import Archive
from lab.paths import Instance
from lab.spec import LabSpec

_LIST_NAME = "images.json"


class ImportFailedError(RuntimeError):
    """containerd refused an archive; the message has its words."""


def missing(instance: Instance, archives: Iterable[Archive]) -> tuple[Archive, ...]:
    """Archives whose present content the node does not have."""
    known = _imported(instance)
    return tuple(archive for archive in archives if known.get(archive.name) != archive.hash)


def import_archive(spec: LabSpec, supervisor: int, archive: Archive) -> None:
    """Give one archive to containerd; the supervisor's process says whose namespaces to work in."""
    command = [
        str(spec.tools["ctr"]),
        "--address",
        str(node_config.containerd_socket(spec)),
        "--namespace=k8s.io",
        "images",
        "import",
        str(archive.tar),
    ]
    ran = subprocess.run(namespaces.enter(supervisor, command), capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise ImportFailedError(f"image archive {archive.name} ({archive.tar}): {ran.stderr.strip()}")
    known = _imported(spec.instance) | {archive.name: archive.hash}
    (spec.instance.state / _LIST_NAME).write_text(json.dumps(known, indent=1))


def import_all(spec: LabSpec, supervisor: int, archives: Sequence[Archive]) -> tuple[str, ...]:
    """Import what is missing; returns the names of the archives imported."""
    new = missing(spec.instance, archives)
    for archive in new:
        import_archive(spec, supervisor, archive)
    return tuple(archive.name for archive in new)


def _imported(instance: Instance) -> dict[str, str]:
    try:
        return json.loads((instance.state / _LIST_NAME).read_text())
    except FileNotFoundError:
        return {}
