"""A lab driven as a user drives it, with an id of its own so that nobody else's lab is touched."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.paths import CHECKOUT, Instance

UP_SECONDS = 300
KUBECTL = Path(sys.executable).with_name("kubectl")


@dataclass(frozen=True)
class LabUnderTest:
    """A lab, driven by its command line as a user drives it."""

    instance: Instance

    def run(self, command: str, *words: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
        """`python -m lab COMMAND --instance ID WORDS`; fails the test when it ends with another exit status."""
        line = [sys.executable, "-m", "lab", command, "--instance", self.instance.id, *words]
        ran = subprocess.run(line, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=UP_SECONDS)
        assert status is None or ran.returncode == status, f"{line}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return ran

    def up(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Start or complete the node, without addons."""
        return self.run("up", "--node-only", *words)

    def status(self) -> dict[str, Any]:
        """What `status --json` says, whatever its exit code."""
        return json.loads(self.run("status", "--json", status=None).stdout)

    def part(self, name: str) -> dict[str, Any]:
        """One part's record."""
        return next(part for part in self.status()["parts"] if part["name"] == name)

    def inside(self, *command: str) -> str:
        """Run a command in the lab's namespaces; returns its output."""
        return self.run("shell", "--", *command).stdout

    def kubectl(self, *words: str, stdin: str | None = None, seconds: int = 120) -> str:
        """Run kubectl from outside."""
        line: Sequence[str] = [str(KUBECTL), f"--kubeconfig={self.instance.kubeconfig}", *words]
        ran = subprocess.run(line, input=stdin, capture_output=True, text=True, check=False, timeout=seconds)
        assert ran.returncode == 0, f"{line}: {ran.stdout}\n{ran.stderr}"
        return ran.stdout
