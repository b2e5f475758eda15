"""PID 1 of a lab: makes its namespaces the lab's, starts the parts in order, and records every death.

It restarts nothing by itself. The lab is a bench on which failures are looked at: a part that came back silently would
hide one. `lab status` names the dead part, `lab up` starts it again, and the record keeps how often that happened.

Started by `lab up` in new PID, mount, network, IPC and UTS namespaces; when it ends, for whatever reason, the kernel
ends the rest.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.linux import isolation
from lab.node import network, parts
from lab.node.certificates import Pki
from lab.node.control import socket_path
from lab.node.probes import answers
from lab.node.records import PartRecord, PartState, exit_words
from lab.node.spec import LabSpec
from lab.paths import CHECKOUT, INSTANCE_VARIABLE, Instance, cache_root

_LAST_LINES = 15
_PROBE_INTERVAL_SECONDS = 0.1
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment(spec: LabSpec, part: parts.Part | None = None) -> dict[str, str]:
    """What a part finds in its environment: nothing of the caller's, so that two starts are alike.

    Garbage collection at 60 % growth instead of 100: a third less heap, for a few per cent of a mostly idle core.
    """
    directories = dict.fromkeys(str(path.parent) for path in spec.tools.values())
    values = {
        "PATH": ":".join([*directories, _SYSTEM_PATH]),
        "HOME": str(spec.instance.state / "tmp"),
        "LANG": "C.UTF-8",
        "TMPDIR": str(spec.instance.state / "tmp"),
        "PYTHONPATH": str(CHECKOUT),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        INSTANCE_VARIABLE: spec.instance.id,
    }
    if part is not None and part.memory_mib is not None:
        values |= {"GOGC": "60", "GOMEMLIMIT": f"{part.memory_mib}MiB"}
    return values


def log_path(instance: Instance, name: str) -> Path:
    """Log of the part called `name`."""
    return instance.state / "logs" / f"{name}.log"


def last_lines(log: Path, count: int = _LAST_LINES) -> tuple[str, ...]:
    """The end of a log; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16384))
            return tuple(line.decode(errors="replace") for line in file.read().splitlines()[-count:])
    except FileNotFoundError:
        return ()


class Supervisor:
    """Starts and watches the parts of one lab."""

    def __init__(self, spec: LabSpec, table: tuple[parts.Part, ...], listeners: Mapping[int, int]) -> None:
        """`listeners`: port outside → descriptor of its listening socket."""
        self._spec = spec
        self._listeners = listeners
        self._table = {part.name: part for part in table}
        self._records = {part.name: PartRecord(name=part.name) for part in table}
        self._ready = {part.name: asyncio.Event() for part in table}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Run until told to end."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for ending in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(ending, ended.set)
        server = await asyncio.start_unix_server(self._serve, socket_path(self._spec.instance))
        async with server:
            for name in self._table:
                self._begin(name)
            await ended.wait()

    def _begin(self, name: str) -> None:
        task = asyncio.get_running_loop().create_task(self._bring_up(self._table[name]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bring_up(self, part: parts.Part) -> None:
        self._note(part.name, state=PartState.WAITING)
        for needed in part.after:
            await self._ready[needed].wait()
        starts = self._records[part.name].starts + 1
        try:
            pid = self._spawn(part)
        except OSError as error:
            self._note(part.name, state=PartState.DEAD, starts=starts, exit=str(error), ended_at=time.time())
            return
        started = time.monotonic()
        self._note(part.name, state=PartState.STARTING, pid=pid, starts=starts)
        while self._records[part.name].pid == pid:
            if await answers(part.probe):
                if self._records[part.name].pid == pid:  # it may have died while it was asked
                    self._note(part.name, state=PartState.READY, seconds_to_ready=time.monotonic() - started)
                    self._ready[part.name].set()
                return
            await asyncio.sleep(_PROBE_INTERVAL_SECONDS)

    def _spawn(self, part: parts.Part) -> int:
        command = list(part.command)
        descriptors: tuple[int, ...] = ()
        if part.listeners:
            descriptors = tuple(self._listeners.values())
            command += forwards(self._spec.instance, self._listeners)
        log = log_path(self._spec.instance, part.name)
        with log.open("ab") as output:
            output.write(f"--- started {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode())
            output.flush()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(self._spec, part),
                cwd="/",
                pass_fds=descriptors,
                start_new_session=True,
            )
        process.returncode = 0  # reaped below with everyone else's orphans, never through this object
        return process.pid

    def _reap(self) -> None:
        """Take every dead child: parts, and orphans of containers, which are this process's since it is PID 1."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._died(pid, os.waitstatus_to_exitcode(status))

    def _died(self, pid: int, code: int) -> None:
        for record in self._records.values():
            if record.running and record.pid == pid:
                self._ready[record.name].clear()
                self._note(
                    record.name,
                    state=PartState.DEAD,
                    pid=0,
                    exit=exit_words(code),
                    ended_at=time.time(),
                    last_lines=last_lines(log_path(self._spec.instance, record.name)),
                )
                print(f"{record.name}: {exit_words(code)}", flush=True)
                return

    def _note(self, name: str, **changes: Any) -> None:  # noqa: ANN401  fields of PartRecord
        self._records[name] = replace(self._records[name], **changes)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            line = await reader.readline()
            if line:
                answer = await self._answer(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.get("do"):
            case "status":
                await asyncio.gather(*(self._look(part) for part in self._table.values()))
                return {"parts": [record.to_json() for record in self._records.values()]}
            case "start-dead":
                dead = [name for name, record in self._records.items() if record.state is PartState.DEAD]
                for name in dead:
                    self._begin(name)
                return {"started": dead}
            case other:
                return {"error": f"no such request: {other!r}"}

    async def _look(self, part: parts.Part) -> None:
        """Probe a part that was ready, so that one which hangs is not called ready."""
        record = self._records[part.name]
        if record.state not in {PartState.READY, PartState.SILENT}:
            return
        alive = not _stopped(record.pid) and await answers(part.probe)
        state = PartState.READY if alive else PartState.SILENT
        if self._records[part.name].pid == record.pid and state is not record.state:
            self._note(part.name, state=state)


def _stopped(pid: int) -> bool:
    """Whether a process is held by SIGSTOP or a debugger (proc_pid_stat(5): the field behind the command's name)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "tT"
    except FileNotFoundError:
        return False


def forwards(instance: Instance, listeners: Mapping[int, int]) -> list[str]:
    """`fd=host:port` for each listening socket: the API server's, and each NodePort's on the node's address."""
    inside = {instance.api_port: ("127.0.0.1", network.API_PORT)}
    inside |= {outside: (network.NODE_IP, node_port) for node_port, outside in instance.forwards.items()}
    return [f"{descriptor}={inside[port][0]}:{inside[port][1]}" for port, descriptor in listeners.items()]


def visible(spec: LabSpec) -> isolation.Visible:
    """What must not disappear below the lab's private /run and /var/lib."""
    others = {Path(sys.prefix), Path(sys.base_prefix), CHECKOUT, cache_root(), spec.cni_plugins}
    others |= {path.parent for path in spec.tools.values()}
    existing = tuple(sorted(path.resolve() for path in others if path.is_dir()))
    return isolation.Visible(spec.instance.state, spec.instance.run, existing)


def main() -> None:
    """Become the lab's PID 1; any failure ends it, and with it the lab."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instance", required=True)
    parser.add_argument("--alive", type=int, required=True, help="descriptor of the locked file that says the lab runs")
    parser.add_argument("--listener", action="append", default=[], metavar="PORT=FD")
    arguments = parser.parse_args()
    listeners = {int(port): int(fd) for port, _, fd in (word.partition("=") for word in arguments.listener)}
    for descriptor in (arguments.alive, *listeners.values()):
        os.set_inheritable(descriptor, False)
    if os.getpid() != 1:
        sys.exit("lab.node.supervisor must be PID 1 of its own namespaces; use `python -m lab up`")
    spec = LabSpec.read(Instance(arguments.instance))
    socket.sethostname(spec.instance.node)
    isolation.isolate(spec.instance.cgroup, visible(spec))
    network.build()
    asyncio.run(Supervisor(spec, parts.table(spec, Pki(spec.instance.state / "pki")), listeners).run())


if __name__ == "__main__":
    main()
