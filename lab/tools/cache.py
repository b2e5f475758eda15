"""How things get into the cache: whole or not at all, once, and named by what they are made of."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

_KEEP = 3  # versions of one thing: another checkout may be on a branch
_HASH_LENGTH = 16  # hex digits: 64 bits, far more than a cache of a few hundred entries needs


def content_hash(parts: Iterable[bytes | str]) -> str:
    """Short name for an ordered list of contents; a boundary counts (`ab`, `c` is not `a`, `bc`)."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:_HASH_LENGTH]


@contextmanager
def appearing_file(target: Path) -> Generator[Path]:
    """Give a path to write to; it becomes `target` in one step when the block ends well, else nothing is left.

    Whoever writes must hold the lock of `target`'s directory: what a killed writer left there is removed.
    """
    with _scratch_beside(target) as scratch:
        work = scratch / target.name
        yield work
        with work.open("rb") as written:
            os.fsync(written.fileno())
        work.replace(target)


@contextmanager
def appearing_directory(target: Path) -> Generator[Path]:
    """Give an empty directory to fill; like `appearing_file`."""
    with _scratch_beside(target) as scratch:
        work = scratch / target.name
        work.mkdir()
        yield work
        work.rename(target)


def forget_old(newest: Path) -> None:
    """Remove all but the last versions used of what is named `<name>-<hash>[.suffix]`; what goes can be made again.

    Args:
        newest: One version; its siblings of the same name are the others.
    """
    name = newest.name.rpartition("-")[0]
    versions = [path for path in newest.parent.glob(f"{name}-*") if path.name.rpartition("-")[0] == name]
    for path in sorted(versions, key=lambda path: path.stat().st_mtime)[:-_KEEP]:
        if path != newest:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def _scratch_beside(target: Path) -> Generator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".partial-{target.name}-"
    for left in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
