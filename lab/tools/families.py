"""Which Go programs the lab is made of: package, pinned version and build flags of each.

A family is a Go module of ours in `lab/tools/<family>/`; its go.mod and go.sum pin everything that it builds.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.errors import LabError
from lab.paths import cache_root
from lab.tools.cache import content_hash

TOOLS = Path(__file__).resolve().parent

PROVIDER_MODULE = "github.com/pulumi/pulumi-kubernetes/provider/v4"
PROVIDER_VERSION = "4.25.0"  # release of the pinned commit; requirements.in pins the Python SDK of the same number

_SOURCES = {"go.mod", "go.sum", "main.go"}


class ToolError(LabError):
    """A program is not there, or cannot be made; the message names the family and what to do."""


@dataclass(frozen=True)
class Family:
    """One Go module of ours and the binaries that it builds.

    Attributes:
        name: Directory below `lab/tools/`.
        binaries: Name of each binary → its Go package, in building order.
        flags: `go build` flags beside those that all share.
        stamps: Go variable → what is linked into it: a module, for its pinned version (`#major` or `#minor` for a part
            of it), or a literal version.
    """

    name: str
    binaries: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    stamps: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        """Directory of the family's go.mod."""
        return TOOLS / self.name

    def pinned(self, module: str) -> str:
        """Version of `module` in go.mod."""
        line = re.compile(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", re.MULTILINE)
        found = line.search((self.source / "go.mod").read_text())
        if not found:
            raise ToolError(f"{self.name}: {self.source / 'go.mod'} does not pin {module}")
        return found[1]

    def arguments(self) -> list[str]:
        """Arguments of `go build`, without output and package."""
        stamps = [f"-X {variable}={self._stamp(value)}" for variable, value in self.stamps.items()]
        return ["-trimpath", *self.flags, "-ldflags", " ".join(["-s -w", *stamps])]

    def output(self) -> Path:
        """Directory of the family's binaries in the cache, named by all that decides what they are."""
        sources = [path.read_bytes() for path in sorted(self.source.iterdir()) if path.name in _SOURCES]
        return (
            cache_root() / "tools" / f"{self.name}-{content_hash([*sources, *self.arguments(), repr(self.binaries)])}"
        )

    def _stamp(self, value: str) -> str:
        module, _, part = value.partition("#")
        if "/" not in module:
            return value
        version = self.pinned(module)
        return version if not part else version.removeprefix("v").split(".")[("major", "minor").index(part)]


def _commands(root: str, *names: str, prefix: str = "") -> dict[str, str]:
    """Binaries that are named after their package below `root`."""
    return {f"{prefix}{name}": f"{root}/{name}" for name in names}


# In the order in which a lab needs them: the node first, the engine last.
FAMILIES = (
    Family("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Family(
        "containerd",
        _commands("github.com/containerd/containerd/v2/cmd", "containerd", "containerd-shim-runc-v2", "ctr"),
    ),
    Family(
        "kubernetes",
        _commands(
            "k8s.io/kubernetes/cmd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
        ),
        flags=("-pgo=off",),  # profile-guided optimisation would compile every package once more for each binary
        stamps={
            "k8s.io/component-base/version.gitVersion": "k8s.io/kubernetes",
            "k8s.io/component-base/version.gitMajor": "k8s.io/kubernetes#major",
            "k8s.io/component-base/version.gitMinor": "k8s.io/kubernetes#minor",
        },
    ),
    Family("coredns", {"coredns": "github.com/coredns/coredns"}),
    Family("local-path-provisioner", {"local-path-provisioner": "github.com/rancher/local-path-provisioner"}),
    Family(
        "prometheus-operator",
        _commands("github.com/prometheus-operator/prometheus-operator/cmd", "prometheus-config-reloader")
        | {"prometheus-operator": "github.com/prometheus-operator/prometheus-operator/cmd/operator"},
    ),
    Family(
        "prometheus",
        _commands("github.com/prometheus/prometheus/cmd", "prometheus", "promtool"),
        flags=("-tags", "remove_all_sd,enable_kubernetes_sd"),
    ),
    Family("keda", _commands("github.com/kedacore/keda/v2/cmd", "operator", "adapter", "webhooks", prefix="keda-")),
    Family(
        "pulumi",
        {"pulumi": "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"},
        flags=("-tags", "osusergo,grpcnotrace"),
        # The Automation API refuses a CLI that does not know its version.
        stamps={"github.com/pulumi/pulumi/sdk/v3/go/common/version.Version": "github.com/pulumi/pulumi/sdk/v3"},
    ),
    Family(
        "pulumi-kubernetes",
        {"pulumi-resource-kubernetes": "."},
        stamps={f"{PROVIDER_MODULE}/pkg/version.Version": PROVIDER_VERSION},
    ),
    Family("inference-extension"),  # data only: the InferencePool CRD
)
ENGINE_TOOLS = ("pulumi", "pulumi-resource-kubernetes")  # what `python -m lab.engine` is made of
NODE_TOOLS = (  # what a lab starts outside pods
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "kubectl",
)
FAMILY_OF: Mapping[str, Family] = {binary: family for family in FAMILIES for binary in family.binaries}
_NOT_IN_A_CLUSTER = {*ENGINE_TOOLS, "promtool"}
CLUSTER_TOOLS = (*(name for name in FAMILY_OF if name not in _NOT_IN_A_CLUSTER), "kubectl")  # of a lab with its addons
