"""Which lab is alive, and that one command at a time changes it: file locks, which the kernel drops with the holder."""

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from lab.paths import Instance


def alive_path(instance: Instance) -> Path:
    """File that the supervisor keeps locked from before its first breath to its last."""
    return instance.run / "alive"


def operation_path(instance: Instance) -> Path:
    """File that a command keeps locked while it starts or ends the lab."""
    return instance.run.with_suffix(".lock")


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


@contextmanager
def operation(instance: Instance, waiting: Callable[[], None]) -> Generator[None]:
    """Be the only command that changes `instance`; `waiting` is called once when another one has to be waited for."""
    path = operation_path(instance)
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _try_lock(descriptor):
                waiting()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_still(path, descriptor):  # the one before may have removed the file that was waited for
                yield
                path.unlink(missing_ok=True)
                return
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
