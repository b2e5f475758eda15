"""Which Debian packages the lab needs, and which of them this machine lacks.

Standard library only: `python -m lab.debian_packages` runs before there is an environment. It succeeds when none lacks.
"""

import subprocess
import sys
from pathlib import Path

LIST = Path(__file__).resolve().parent / "debian-packages.txt"


def needed() -> tuple[str, ...]:
    """Names of the packages, as `debian-packages.txt` lists them."""
    return tuple(LIST.read_text().split())


def missing() -> tuple[str, ...]:
    """Those that are not installed; all of them on a machine without dpkg."""
    command = ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *needed()]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return needed()
    installed = {line.split()[0] for line in shown.splitlines() if line.endswith(" installed")}
    return tuple(name for name in needed() if name not in installed)


if __name__ == "__main__":
    sys.exit(f"missing Debian packages: {' '.join(missing())}" if missing() else 0)
