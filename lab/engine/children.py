"""The processes that a host runs for the engine, and how they end."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_TERMINATE_SECONDS = 2.0  # a program that waits for the engine ends at once; this is for one that does not
_CHUNK_BYTES = 65536


class Children:
    """Processes that lead a process group each.

    A group of their own, because the engine interrupts the whole group of a host that it is done with, and a Python
    program would answer that with a traceback.
    """

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def start(
        self,
        command: list[str],
        *,
        cwd: str | Path,
        env: Mapping[str, str],
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start `command`; it is known to `end_all` until `wait` has reaped it."""
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, process_group=0
        )
        with self._lock:
            self._running.add(process)
        return process

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        """Exit status of `process` once it has ended; negative if a signal ended it."""
        status = process.wait()
        with self._lock:
            self._running.discard(process)
        return status

    def stream(self, process: subprocess.Popen[bytes]) -> Iterator[tuple[str, bytes]]:
        """What `process` writes, as it comes: `("stdout", chunk)` or `("stderr", chunk)`, until both are closed."""
        chunks: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()

        def pump(name: str, pipe: IO[bytes]) -> None:
            while chunk := os.read(pipe.fileno(), _CHUNK_BYTES):
                chunks.put((name, chunk))
            pipe.close()
            chunks.put((name, b""))

        pipes = {"stdout": process.stdout, "stderr": process.stderr}
        threads = [
            threading.Thread(target=pump, args=(name, pipe), daemon=True) for name, pipe in pipes.items() if pipe
        ]
        for thread in threads:
            thread.start()
        open_pipes = len(threads)
        while open_pipes:
            name, chunk = chunks.get()
            if chunk:
                yield name, chunk
            else:
                open_pipes -= 1

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Ask the group of `process` to end, and after a moment make it."""
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(_TERMINATE_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def end_all(self) -> None:
        """End whatever still runs."""
        with self._lock:
            running = list(self._running)
        for process in running:
            self.end(process)
