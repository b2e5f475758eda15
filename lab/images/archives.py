"""How the lab's images become archives that containerd imports.

Archives, and the layers that are slow to make, are cached by what they are made of.
"""

import hashlib
import io
import json
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.images.layers import Layer, architecture
from lab.images.table import Image, images
from lab.locks import locked
from lab.paths import cache_root
from lab.progress import Progress
from lab.tools.cache import appearing_directory, appearing_file, content_hash, forget_old

_TIME = 315532800  # 1980-01-01: one time for all files makes equal content equal bytes
_RECIPE = "1"  # counts changes of this file that change archives


@dataclass(frozen=True)
class Archive:
    """A docker-archive tar with one or more images; imported once per hash (`ctr -n k8s.io images import TAR`).

    Attributes:
        name: What is in it; stable over versions.
        tar: Where it is.
        hash: Of all that it is made from.
        references: The images in it, by full name.
    """

    name: str
    tar: Path
    hash: str
    references: tuple[str, ...]


def ensure_images(progress: Progress, only: str | None = None) -> tuple[Archive, ...]:
    """Make every archive of the lab exist, or only the one with the image `only`.

    Needs root and the binaries of `lab.tools.toolchain.build_all`.

    Raises:
        ImageError: A part cannot be made.
        ToolError: A binary is not built yet.
    """
    groups: dict[str, list[Image]] = {}
    for image in images():
        groups.setdefault(image.archive, []).append(image)
    wanted = {
        name: members
        for name, members in groups.items()
        if only is None or only in {image.reference for image in members}
    }
    return tuple(_ensure(name, members, progress) for name, members in wanted.items())


def _ensure(name: str, members: list[Image], progress: Progress) -> Archive:
    parts = [
        json.dumps([image.reference, image.config(), [layer.key for layer in image.layers]], sort_keys=True)
        for image in members
    ]
    key = content_hash([_RECIPE, architecture(), *parts])
    tar = cache_root() / "images" / f"{name}-{key}.tar"
    if not tar.exists():

        def waiting() -> None:
            progress.note("… images: another process is building them; waiting")

        with locked(cache_root() / "locks" / "images.lock", waiting):
            if not tar.exists():
                with progress.step(f"image archive {name}"), appearing_file(tar) as work:
                    _write_archive(work, members)
        forget_old(tar)
    tar.touch()
    return Archive(name, tar, key, tuple(image.reference for image in members))


def _write_archive(path: Path, members: list[Image]) -> None:
    layers = {layer.key: layer for image in members for layer in image.layers}
    built = {key: _layer(layer, path.parent) for key, layer in layers.items()}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for layer_tar, digest in built.values():
            archive.add(layer_tar, f"{digest}.tar", filter=_plain)
        manifest = []
        for image in members:
            digests = [built[layer.key][1] for layer in image.layers]
            config = json.dumps(_config(image, digests), sort_keys=True).encode()
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add_bytes(archive, name, config)
            layer_names = [f"{digest}.tar" for digest in digests]
            manifest.append({"Config": name, "RepoTags": [image.reference], "Layers": layer_names})
        _add_bytes(archive, "manifest.json", json.dumps(manifest).encode())


def _config(image: Image, digests: list[str]) -> dict[str, object]:
    return {
        "architecture": architecture(),
        "os": "linux",
        "config": image.config(),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }


def _layer(layer: Layer, scratch: Path) -> tuple[Path, str]:
    """Tar of a layer and its SHA-256; in the cache when the layer is worth keeping, else below `scratch`."""
    if not layer.keep:
        return _write_layer(layer, scratch / layer.name)
    home = cache_root() / "layers" / f"{layer.name}-{layer.key}"
    if not home.exists():
        with appearing_directory(home) as work:
            _write_layer(layer, work)
        forget_old(home)
    home.touch()
    tar = next(home.glob("*.tar"))
    return tar, tar.stem


def _write_layer(layer: Layer, home: Path) -> tuple[Path, str]:
    """Write `<SHA-256>.tar` into `home`."""
    home.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        root = Path(scratch) / "root"
        root.mkdir()
        tree = layer.tree(root)
        work = Path(scratch) / "layer.tar"
        with tarfile.open(work, "w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(tree.rglob("*")):
                archive.add(path, str(path.relative_to(tree)), recursive=False, filter=_content)
        with work.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        return work.rename(home / f"{digest}.tar"), digest


def _content(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """A file of a layer: no device nodes, no time, no user names, and nothing that only root could read."""
    if member.ischr() or member.isblk() or member.isfifo():
        return None
    member.mtime = _TIME
    member.uname = member.gname = ""
    owner = member.mode & 0o500
    member.mode |= owner >> 3 | owner >> 6
    return member


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = _TIME
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = _plain(tarfile.TarInfo(name))
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))
