"""How a lab begins and ends, seen from the machine: `up` and `down`, both harmless when there is nothing to do."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from lab import addons, host, locks
from lab.addons.addon import Manifest
from lab.api import Api, ApiError
from lab.errors import LabError
from lab.images import archives, importing
from lab.images.archives import Archive
from lab.images.table import PAUSE
from lab.linux import cgroups, namespaces
from lab.node import certificates, config_files, ports
from lab.node import supervisor as lab_supervisor
from lab.node.control import Control, NotRunningError
from lab.node.gpus import RESOURCE
from lab.node.records import PartRecord, PartState
from lab.node.spec import LabSpec, NodeOptions
from lab.paths import Instance
from lab.progress import Progress
from lab.tools import toolchain
from lab.tools.families import CLUSTER_TOOLS, NODE_TOOLS

# Namespaces, mounts and a Python start take well under one; the rest is for a busy machine.
_FIRST_BREATH_SECONDS = 20.0
_PARTS_SECONDS = 180.0  # 10 s on two idle cores
_NODE_SECONDS = 120.0
_END_SECONDS = 60.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class UpReport:
    """What `up` did.

    Attributes:
        already: Whether the lab was running before.
        restarted: Dead parts that were started again.
    """

    already: bool
    restarted: tuple[str, ...] = ()


def up(
    instance: Instance, wishes: Mapping[str, float | None], progress: Progress, *, node_only: bool = False
) -> UpReport:
    """Start the lab, or complete a running one, and wait until everything is ready.

    Args:
        instance: Which.
        wishes: Fields of `NodeOptions` that the user set; None = no wish.
        progress: Where to show steps.
        node_only: Leave out the images of the stand-ins and everything applied through the API.

    Raises:
        HostError: This machine cannot run a lab.
        PortTakenError: Someone else listens on a port of the instance.
        LabError: A part died or did not become ready.
    """
    machine = host.check()
    with locks.operation(instance, lambda: progress.note("… another command is working on this lab; waiting for it")):
        already, restarted = locks.is_alive(instance), ()
        if already:
            spec = LabSpec.read(instance)
            differences = spec.options.differences(wishes)
            if differences:
                raise LabError(
                    f"lab {instance.id!r} runs with other options ({'; '.join(differences)}): take it down first"
                )
        tools = toolchain.build_all(progress, only=NODE_TOOLS if node_only else CLUSTER_TOOLS)
        images = archives.ensure_images(progress, only=PAUSE if node_only else None)
        if already:
            restarted = Control(instance).start_dead()
            for name in restarted:
                progress.note(f"… {name} was dead; starting it again")
        else:
            options = replace(NodeOptions(), **{name: wish for name, wish in wishes.items() if wish is not None})
            spec = LabSpec(
                instance=instance,
                options=options,
                tools={name: tools[name] for name in NODE_TOOLS} | {"runc": machine.programs["runc"]},
                cni_plugins=machine.cni_plugins,
                sandbox_image=PAUSE,
                node_only=node_only,
            )
            with progress.step("namespaces"):
                _start(spec)
        if not node_only:
            replace(spec, node_only=False).write()
        _complete(spec, images, progress, with_addons=not node_only)
    return UpReport(already=already, restarted=restarted)


def _start(spec: LabSpec) -> None:
    """From nothing to a supervisor that listens."""
    instance = spec.instance
    sweep(instance)
    listeners = ports.listen(ports.wanted(instance))
    try:
        instance.state.mkdir(parents=True, mode=0o755)
        for name in ("log", "logs", "tmp", "volumes"):
            (instance.state / name).mkdir()
        pki = certificates.create(instance)
        config_files.write(spec, pki)
        spec.write()
        alive = locks.take_alive(instance)
        if alive is None:
            raise LabError(f"lab {instance.id!r} was started by someone else at this moment")
        log = lab_supervisor.log_path(instance, "supervisor")
        descriptors = {port: listener.fileno() for port, listener in listeners.items()}
        process = namespaces.start(instance, alive, descriptors, log)
        os.close(alive)
    finally:
        for listener in listeners.values():
            listener.close()
    _await_supervisor(instance, process)


def _await_supervisor(instance: Instance, process: subprocess.Popen[bytes]) -> None:
    control = Control(instance)

    def listening() -> str | None:
        if process.poll() is not None:
            said = lab_supervisor.last_lines(lab_supervisor.log_path(instance, "supervisor"))
            raise LabError("the lab's supervisor ended at once:\n" + "\n".join(said))
        try:
            control.pid()
        except NotRunningError as error:
            return str(error)
        return None

    _wait(listening, _FIRST_BREATH_SECONDS)
    process.returncode = 0  # it goes on without this command, which must not wait for it


def _complete(spec: LabSpec, images: Sequence[Archive], progress: Progress, *, with_addons: bool) -> None:
    """Wait for the parts, the node, and the addons; images come in beside them, each before what asks for it."""
    instance = spec.instance
    control = Control(instance)
    one_by_one = ThreadPoolExecutor(max_workers=1)
    try:
        with progress.step("control plane"):
            _wait(lambda: not_ready(control.parts(), only=("containerd",)), _PARTS_SECONDS)
            pid = control.pid()
            coming = {archive: one_by_one.submit(importing.bring_in, spec, pid, archive) for archive in images}
            _wait(lambda: not_ready(control.parts()), _PARTS_SECONDS)
        with progress.step("node"):
            _wait(lambda: node_problem(instance, spec.options.gpus), _NODE_SECONDS)
        if with_addons:
            where = replace(addons.site(instance.kubeconfig), await_images=lambda it: _await_images(coming, it))
            with progress.step("addons"):
                addons.apply(instance.kubeconfig, progress, where=where)
        with progress.step("images"):
            for arrival in coming.values():
                arrival.result()
    finally:
        one_by_one.shutdown(cancel_futures=True)


def _await_images(coming: Mapping[Archive, Future[bool]], objects: Sequence[Manifest]) -> None:
    """Wait for every image that `objects` name: a pod that misses its image at first backs off for ten seconds."""
    text = json.dumps(objects)
    for archive, arrival in coming.items():
        if any(reference in text for reference in archive.references):
            arrival.result()


def not_ready(records: Sequence[PartRecord], only: Sequence[str] = ()) -> str | None:
    """What one still waits for, in words; None when all is ready; raises LabError when a part died."""
    dead = [record for record in records if record.state is PartState.DEAD]
    if dead:
        raise LabError("\n".join(obituary(record) for record in dead))
    waiting = [
        record for record in records if record.state is not PartState.READY and (not only or record.name in only)
    ]
    return ", ".join(f"{record.name} is {record.state}" for record in waiting) or None


def obituary(record: PartRecord) -> str:
    """How a part died, with its last words."""
    return "\n".join([f"{record.name} is dead: {record.exit}", *(f"  {line}" for line in record.last_lines)])


def node_problem(instance: Instance, gpus: int) -> str | None:
    """Why the node cannot take a model server yet; None when it can."""
    try:
        node = Api.from_kubeconfig(instance.kubeconfig, 5).get(f"/api/v1/nodes/{instance.node}")
    except ApiError as error:
        return f"node {instance.node} cannot be asked for ({error})"
    conditions = {condition["type"]: condition for condition in node["status"].get("conditions", [])}
    ready = conditions.get("Ready", {})
    if ready.get("status") != "True":
        return f"node {instance.node} is not Ready: {ready.get('message', 'no condition yet')}"
    seen = node["status"].get("allocatable", {}).get(RESOURCE, "0")
    return None if seen == str(gpus) else f"node {instance.node} has {seen} {RESOURCE} instead of {gpus}"


def down(instance: Instance, progress: Progress) -> bool:
    """End the lab and remove what it kept; returns whether there was anything.

    Raises:
        LabError: The kernel did not end its processes in time.
    """
    host.require_root()
    with locks.operation(instance, lambda: progress.note("… another command is working on this lab; waiting for it")):
        there = locks.is_alive(instance) or instance.state.exists() or bool(cgroups.directories(instance.cgroup))
        if locks.is_alive(instance):
            with progress.step("end"):
                _end(instance)
        sweep(instance)
    return there


def _end(instance: Instance) -> None:
    control = Control(instance)
    found: list[int] = []

    def listening() -> str | None:
        try:
            found.append(control.pid())
        except NotRunningError as error:
            return str(error) if locks.is_alive(instance) else None
        return None

    _wait(listening, _FIRST_BREATH_SECONDS)
    if found and not namespaces.end(found[-1], _END_SECONDS):
        raise LabError(
            f"lab {instance.id!r}: process {found[-1]} is killed and does not end; see `ps -o stat,wchan {found[-1]}`"
        )
    _wait(lambda: "its lock is held" if locks.is_alive(instance) else None, _END_SECONDS)


def sweep(instance: Instance) -> None:
    """Remove what a lab that is not alive any more left: empty cgroups, state, sockets."""
    if locks.is_alive(instance):
        raise LabError(f"lab {instance.id!r} is alive")
    cgroups.sweep(instance.cgroup)
    for directory in (instance.state, instance.run):
        if directory.exists():
            shutil.rmtree(directory)


def _wait(problem: Callable[[], str | None], timeout_seconds: float) -> None:
    """Ask until there is no problem; raises LabError with the last one."""
    deadline = time.monotonic() + timeout_seconds
    while (seen := problem()) is not None:
        if time.monotonic() > deadline:
            raise LabError(f"after {timeout_seconds:.0f} s: {seen}")
        time.sleep(_POLL_SECONDS)
