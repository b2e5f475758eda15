"""How addons change the cluster: by the kubectl program, one short run per change."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.addons.addon import Manifest
from lab.errors import LabError

MANAGER = "llm-d-lab"  # field manager of everything the lab applies


class KubectlError(LabError):
    """kubectl failed; the message is what it said."""


@dataclass(frozen=True)
class Kubectl:
    """kubectl for one cluster."""

    program: Path
    kubeconfig: Path
    seconds: int = 60  # how long one request may take

    def apply(self, objects: Sequence[Manifest]) -> None:
        """Create or update objects by server-side apply; fields that others took are taken back."""
        if objects:
            command = ["apply", "--server-side", "--force-conflicts", f"--field-manager={MANAGER}", "-f", "-"]
            self._run(command, _list(objects))

    def create_missing(self, objects: Sequence[Manifest]) -> None:
        """Create those objects that do not exist; the others stay as they are."""
        for manifest in objects:
            try:
                self._run(["create", f"--field-manager={MANAGER}", "-f", "-"], json.dumps(manifest))
            except KubectlError as error:
                if "AlreadyExists" not in str(error):
                    raise

    def last_log_lines(self, namespace: str, pod: str, lines: int = 5) -> str:
        """The end of every container's log of a pod; what went wrong when there is none."""
        try:
            return self._run(
                ["logs", f"--namespace={namespace}", pod, "--all-containers", "--prefix", f"--tail={lines}"]
            )
        except KubectlError as error:
            return str(error)

    def _run(self, arguments: Sequence[str], stdin: str | None = None) -> str:
        command = [
            str(self.program),
            f"--kubeconfig={self.kubeconfig}",
            f"--request-timeout={self.seconds}s",
            *arguments,
        ]
        try:
            run = subprocess.run(
                command, input=stdin, capture_output=True, text=True, check=False, timeout=2 * self.seconds
            )
        except subprocess.TimeoutExpired:
            raise KubectlError(f"kubectl {arguments[0]}: no end after {2 * self.seconds} s") from None
        if run.returncode != 0:
            raise KubectlError(run.stderr.strip() or f"kubectl {arguments[0]} ended with status {run.returncode}")
        return run.stdout


def _list(objects: Sequence[Manifest]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
