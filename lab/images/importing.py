"""Which of the lab's images its node has, and how the missing ones get there."""

import json
import subprocess

from lab.errors import LabError
from lab.images.archives import Archive
from lab.linux import namespaces
from lab.node import config_files
from lab.node.spec import LabSpec
from lab.paths import Instance

_LIST_NAME = "images.json"


class ImportFailedError(LabError):
    """containerd refused an archive; the message has its words."""


def bring_in(spec: LabSpec, supervisor: int, archive: Archive) -> bool:
    """Give an archive to containerd unless the node has its present content; returns whether it had to.

    Args:
        spec: The lab.
        supervisor: Its process, which says whose namespaces to work in.
        archive: What to import.

    Raises:
        ImportFailedError: containerd refused.
    """
    known = _imported(spec.instance)
    if known.get(archive.name) == archive.hash:
        return False
    socket = str(config_files.containerd_socket(spec))
    command = [str(spec.tools["ctr"]), "--address", socket, "--namespace=k8s.io", "images", "import", str(archive.tar)]
    ran = subprocess.run(namespaces.enter(supervisor, command), capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise ImportFailedError(f"image archive {archive.name} ({archive.tar}): {ran.stderr.strip()}")
    (spec.instance.state / _LIST_NAME).write_text(json.dumps(known | {archive.name: archive.hash}, indent=1))
    return True


def _imported(instance: Instance) -> dict[str, str]:
    try:
        return json.loads((instance.state / _LIST_NAME).read_text())
    except FileNotFoundError:
        return {}
