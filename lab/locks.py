"""Who holds what: file locks, which the kernel drops with their holder. A lab lives while its supervisor holds one."""

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from lab.paths import Instance


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Generator[None]:
    """Hold an exclusive lock on the file `path`; the kernel drops it when this process ends, however it ends.

    Args:
        path: The lock file, made when missing and never removed: whoever waits for it must find the same one.
        waiting: Called once when another process holds the lock, before waiting for it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        if not _try_lock(file.fileno()):
            if waiting:
                waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def alive_path(instance: Instance) -> Path:
    """File that the supervisor keeps locked from before its first breath to its last."""
    return instance.run / "alive"


def take_alive(instance: Instance) -> int | None:
    """Descriptor of the locked file, to hand to a supervisor; None when one has it already."""
    instance.run.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(alive_path(instance), os.O_RDWR | os.O_CREAT, 0o600)
    if _try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def is_alive(instance: Instance) -> bool:
    """Whether a supervisor holds its lock."""
    try:
        descriptor = os.open(alive_path(instance), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def operation(instance: Instance, waiting: Callable[[], None]) -> AbstractContextManager[None]:
    """Be the only command that changes `instance`; `waiting` is called once when another one has to be waited for."""
    return locked(instance.run.with_suffix(".lock"), waiting)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
