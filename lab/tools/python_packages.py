"""How hash-locked Python packages get into a directory that is not the project's environment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from lab.errors import LabError


class PackageInstallError(LabError):
    """uv is missing, or could not install a lock."""


def install(lock: Path, target: Path, *, python: str | None = None, platform: str | None = None) -> None:
    """Install exactly what `lock` lists, wheels only, every hash checked.

    Args:
        lock: A requirements file in which each line is pinned and hashed.
        target: Directory that becomes importable.
        python: Python version to install for (`3.11`); this interpreter's when absent.
        platform: uv's name of the platform to install for (`x86_64-manylinux_2_36`); this machine's when absent.

    Raises:
        PackageInstallError: With the command and what it said last.
    """
    command = [str(_uv()), "pip", "install", "--quiet", "--target", str(target), "--require-hashes", "--no-deps"]
    command += ["--only-binary", ":all:", "--requirements", str(lock)]
    command += ["--python-version", python] if python else []
    command += ["--python-platform", platform] if platform else []
    # Copies rather than hard links into uv's cache: what we build from the directory must not change uv's files.
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "UV_LINK_MODE": "copy"}
    )
    if ran.returncode != 0:
        raise PackageInstallError(f"`{' '.join(command)}` failed:\n{ran.stderr.strip()[-2000:]}")


def _uv() -> Path:
    beside = Path(sys.executable).parent / "uv"
    found = beside if beside.exists() else shutil.which("uv")
    if not found:
        raise PackageInstallError(f"no `uv` beside {sys.executable} or on PATH; install requirements-dev.txt")
    return Path(found)
