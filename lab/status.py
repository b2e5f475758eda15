"""What state a lab is in: parts, node, addons, memory and ports, gathered once and judged."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lab import addons as lab_addons
from lab import lifecycle, locks
from lab.addons import AddonStatus
from lab.linux import namespaces
from lab.node.control import Control, NotRunningError
from lab.node.records import PartRecord, PartState
from lab.node.spec import LabSpec
from lab.paths import Instance

DOWN, DEGRADED, FINE = 3, 1, 0  # exit codes; 3 is what service managers use for "not running"


@dataclass(frozen=True, kw_only=True)
class LabStatus:
    """One look at a lab.

    Attributes:
        instance: Its id.
        running: Whether its supervisor lives.
        problems: What a person should know first, one line each; empty = all is well.
        parts: Every program of the node.
        addons: Everything applied through the API.
        node_ready: Whether the node takes pods and has its GPUs.
        processes: Processes of the lab, those of pods included.
        memory_bytes: Their proportional set size together.
        api: Address of the API server, outside.
        kubeconfig: For it.
        ports: NodePort → port on the machine's loopback.
    """

    instance: str
    running: bool
    problems: tuple[str, ...] = ()
    parts: tuple[PartRecord, ...] = ()
    addons: tuple[AddonStatus, ...] = ()
    node_ready: bool = False
    processes: int = 0
    memory_bytes: int = 0
    api: str = ""
    kubeconfig: str = ""
    ports: dict[int, int] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 = all well, 1 = something is wrong, 3 = not running."""
        if not self.running:
            return DOWN
        return DEGRADED if self.problems else FINE

    def to_json(self) -> dict[str, Any]:
        """As JSON values, problems first."""
        return asdict(self)


def look(instance: Instance) -> LabStatus:
    """Gather everything; never raises for a lab that is down or broken."""
    control = Control(instance)
    try:
        pid, parts = control.pid(), control.parts()
    except NotRunningError as error:
        return LabStatus(
            instance=instance.id, running=locks.is_alive(instance), problems=(_absence(instance, str(error)),)
        )
    spec = LabSpec.read(instance)
    node = lifecycle.node_problem(instance, spec.options.gpus)
    seen = () if spec.node_only else tuple(lab_addons.status(instance.kubeconfig))
    members = namespaces.members(pid)
    return LabStatus(
        instance=instance.id,
        running=True,
        problems=problems(parts, node, seen),
        parts=parts,
        addons=seen,
        node_ready=node is None,
        processes=len(members),
        memory_bytes=namespaces.memory_bytes(tuple(members)),
        api=f"https://127.0.0.1:{instance.api_port}",
        kubeconfig=str(instance.kubeconfig),
        ports=instance.forwards,
    )


def problems(parts: Sequence[PartRecord], node: str | None, seen: Sequence[AddonStatus]) -> tuple[str, ...]:
    """One line for everything that is wrong; causes (parts) before what follows from them (node, addons)."""
    lines = []
    for part in parts:
        if part.state is PartState.DEAD:
            lines.append(lifecycle.obituary(part))
        elif part.state is PartState.SILENT:
            lines.append(f"{part.name} runs (process {part.pid} in the lab) and does not answer")
        elif part.state is not PartState.READY:
            lines.append(f"{part.name} is {part.state}")
    if node is not None:
        lines.append(node)
    lines += [f"addon {addon.name}: {addon.detail}" for addon in seen if not addon.ready]
    return tuple(lines)


def _absence(instance: Instance, reason: str) -> str:
    if locks.is_alive(instance):
        return f"{reason}, but its supervisor holds its lock: it is starting, or hangs"
    if instance.state.exists():
        return f"lab {instance.id!r} ended without `lab down` (killed?); `lab up` starts a new one, `lab down` sweeps"
    return f"lab {instance.id!r} is down; `python -m lab up` starts it"
