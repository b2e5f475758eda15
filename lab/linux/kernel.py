"""The two system calls that Python 3.11 lacks: mount and unshare.

Called directly rather than through `mount(8)`, which would resolve `/proc/self/fd/N` to a path and so lose what a cover
hides.
"""

import ctypes
import os
from pathlib import Path

MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8
MS_BIND, MS_REC, MS_SHARED = 0x1000, 0x4000, 0x100000
CLONE_NEWCGROUP = 0x02000000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount(source: str | Path, target: Path, kind: str = "", *, flags: int = 0, data: str = "") -> None:
    """Mount `source` on `target` (mount(2)); raises OSError that names both."""
    result = _libc.mount(
        str(source).encode(), str(target).encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    _check(result, f"mount {kind or 'bind'} {source} on {target}")


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags` for new ones (unshare(2))."""
    _check(_libc.unshare(flags), f"unshare {flags:#x}")
