"""What one lab is told when it starts, and what the supervisor reads back: a JSON file in the state directory."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from lab.errors import LabError
from lab.paths import Instance


class OptionError(LabError):
    """An option that no node can have; the message begins with its name."""


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """What a user may set; defaults but for the GPUs are Kubernetes's own: an untouched lab behaves like a cluster.

    Attributes:
        gpus: Fake `nvidia.com/gpu` on the node; 16 = two machines of eight, enough for both dev models at most.
        hpa_sync_period_seconds: How often an HPA looks.
        hpa_downscale_stabilization_seconds: How long it remembers a higher wish (HPAs that set no window of their own).
        hpa_initial_readiness_delay_seconds: How long a young pod's unreadiness counts as starting (CPU metrics only).
        hpa_cpu_initialization_period_seconds: How long a young pod's CPU samples are ignored.
        hpa_tolerance: Relative distance from the target within which nothing happens.
    """

    gpus: int = 16
    hpa_sync_period_seconds: float = 15
    hpa_downscale_stabilization_seconds: float = 300
    hpa_initial_readiness_delay_seconds: float = 30
    hpa_cpu_initialization_period_seconds: float = 300
    hpa_tolerance: float = 0.1

    def __post_init__(self) -> None:
        """Refuse what the controller manager would refuse later, with the option's name."""
        for name, value in asdict(self).items():
            if value < 0 or (value == 0 and name == "hpa_sync_period_seconds"):
                raise OptionError(f"--{name.replace('_', '-')}: {value} is not a positive number")

    def differences(self, wishes: Mapping[str, float | None]) -> tuple[str, ...]:
        """What of `wishes` (None = no wish) differs from these options, in words."""
        return tuple(
            f"--{name.replace('_', '-')} is {getattr(self, name):g}, asked for {wish:g}"
            for name, wish in wishes.items()
            if wish is not None and wish != getattr(self, name)
        )


@dataclass(frozen=True, kw_only=True)
class LabSpec:
    """Everything that the supervisor needs to run the node.

    Attributes:
        instance: Which lab.
        options: What the user set.
        tools: Program name → absolute path, for every program that a part or its children start.
        cni_plugins: Directory of the CNI plugins.
        sandbox_image: Reference of the image that holds a pod's namespaces.
        node_only: Whether nothing is applied through the API, so that status does not miss it.
    """

    instance: Instance
    options: NodeOptions
    tools: Mapping[str, Path] = field(hash=False)
    cni_plugins: Path
    sandbox_image: str
    node_only: bool = False

    @staticmethod
    def path(instance: Instance) -> Path:
        """Where the spec of `instance` is."""
        return instance.state / "lab.json"

    def write(self) -> None:
        """Store it; the state directory must exist."""
        document = {
            "instance": self.instance.id,
            "options": asdict(self.options),
            "tools": {name: str(path) for name, path in self.tools.items()},
            "cniPlugins": str(self.cni_plugins),
            "sandboxImage": self.sandbox_image,
            "nodeOnly": self.node_only,
        }
        self.path(self.instance).write_text(json.dumps(document, indent=1))

    @classmethod
    def read(cls, instance: Instance) -> "LabSpec":
        """Load it; raises FileNotFoundError when the lab was never started."""
        document = json.loads(cls.path(instance).read_text())
        known = {option.name for option in fields(NodeOptions)}
        return cls(
            instance=Instance(document["instance"]),
            options=NodeOptions(**{name: value for name, value in document["options"].items() if name in known}),
            tools={name: Path(path) for name, path in document["tools"].items()},
            cni_plugins=Path(document["cniPlugins"]),
            sandbox_image=document["sandboxImage"],
            node_only=document["nodeOnly"],
        )
