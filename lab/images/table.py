"""Which images the lab provides, under the names that manifests ask for."""

from dataclasses import dataclass, field

from lab.images.layers import NOBODY, NONROOT, Layer, busybox, debian, envoy, packages, program, stand_ins
from lab.tools.families import FAMILY_OF

PAUSE = "lab.llm-d.ai/pause:1"  # the sandbox of every pod
BUSYBOX = "docker.io/library/busybox:latest"  # what local-path's own manifest names for its helper pods

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PYTHON = {"LANG": "C.UTF-8", "HOME": "/home/nonroot", "PYTHONPATH": "/app", "PYTHONUNBUFFERED": "1"}
# Sleeps, and reaps what a pod with a shared process namespace orphans.
_SLEEP = ("/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done")


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image.

    Attributes:
        archive: Images of one archive travel together, because they share layers.
        reference: Full name and tag.
        layers: Lowest first.
        entrypoint: Program and first arguments.
        command: Default arguments.
        user: Numeric, so that `runAsNonRoot` can be checked; the group is the same.
        environment: Beside PATH.
        directory: Where the program starts.
    """

    archive: str
    reference: str
    layers: tuple[Layer, ...]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: int = NONROOT
    environment: dict[str, str] = field(default_factory=dict)
    directory: str = "/"

    def config(self) -> dict[str, object]:
        """The `config` part of its OCI image configuration."""
        variables = {"PATH": _PATH, **self.environment}
        return {
            "User": f"{self.user}:{self.user}",
            "Env": [f"{name}={value}" for name, value in variables.items()],
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
            "WorkingDir": self.directory,
        }


def images() -> tuple[Image, ...]:
    """Every image, those of the addons first."""
    return (*_busybox(), *_cluster(), *_monitoring(), *_keda(), *_stand_ins(), _envoy())


def _busybox() -> tuple[Image, ...]:
    layers = (busybox(),)
    return (
        Image(archive="busybox", reference=PAUSE, layers=layers, entrypoint=_SLEEP, user=NOBODY),
        Image(archive="busybox", reference=BUSYBOX, layers=layers, command=("/bin/sh",), user=0),
    )


def _cluster() -> tuple[Image, ...]:
    return (
        _program("coredns", "/coredns", "registry.k8s.io/coredns/coredns:{}"),
        _program(
            "local-path-provisioner",
            "/usr/bin/local-path-provisioner",
            "docker.io/rancher/local-path-provisioner:{}",
            0,
        ),
    )


def _monitoring() -> tuple[Image, ...]:
    home = "quay.io/prometheus-operator"
    return (
        _program("prometheus-operator", "/bin/operator", home + "/prometheus-operator:{}", NOBODY),
        _program(
            "prometheus-config-reloader",
            "/bin/prometheus-config-reloader",
            home + "/prometheus-config-reloader:{}",
            NOBODY,
        ),
        _program("prometheus", "/bin/prometheus", "quay.io/prometheus/prometheus:{}", NOBODY),
    )


def _keda() -> tuple[Image, ...]:
    return (
        _program("keda-operator", "/keda", "ghcr.io/kedacore/keda:{}"),
        _program("keda-adapter", "/keda-adapter", "ghcr.io/kedacore/keda-metrics-apiserver:{}"),
        _program("keda-webhooks", "/keda-admission-webhooks", "ghcr.io/kedacore/keda-admission-webhooks:{}"),
    )


def _envoy() -> Image:
    layers = (debian(), envoy())
    return Image(archive="envoy", reference="lab.llm-d.ai/envoy:1.40.0", layers=layers, entrypoint=("envoy",))


def _stand_ins() -> tuple[Image, ...]:
    layers = (debian(), packages(), stand_ins())

    def stand_in(name: str, *entrypoint: str, **environment: str) -> Image:
        return Image(
            archive="stand-ins",
            reference=f"lab.llm-d.ai/{name}",
            layers=layers,
            entrypoint=entrypoint,
            environment=_PYTHON | environment,
            directory="/home/nonroot",
        )

    def router(name: str, entrypoint: str) -> tuple[Image, ...]:
        """One image per dialect: a real binary knows the flags of its own version only."""
        return tuple(stand_in(f"{name}:{v}.0", entrypoint, STAND_IN_ROUTER_VERSION=v) for v in ("0.10", "0.11"))

    tools = Image(
        archive="stand-ins",
        reference="lab.llm-d.ai/tools:1",
        layers=layers[:1],
        command=("python3",),
        environment=_PYTHON,
    )
    return (
        stand_in("vllm:0.27.1", "vllm", "serve"),
        *router("endpoint-picker", "/app/epp"),
        *router("routing-sidecar", "/app/pd-sidecar"),
        stand_in("model-hub:1", "/app/model-hub"),
        stand_in("metrics-gate:1", "/app/metrics-gate"),
        stand_in("service-ca:1", "/app/service-ca"),
        tools,
    )


# Binary → the module whose pinned version is its image's tag, as the project's own manifests write it.
_RELEASES = {
    "coredns": "github.com/coredns/coredns",
    "keda": "github.com/kedacore/keda/v2",
    "local-path-provisioner": "github.com/rancher/local-path-provisioner",
    "prometheus": "github.com/prometheus/prometheus",
    "prometheus-operator": "github.com/prometheus-operator/prometheus-operator",
}


def _program(name: str, path: str, reference: str, user: int = NONROOT) -> Image:
    family = FAMILY_OF[name]
    return Image(
        archive=family.name,
        reference=reference.format(release(family.name)),
        layers=(program(name, path),),
        entrypoint=(path,),
        user=user,
    )


def release(family: str) -> str:
    """Version of a family as its project tags images: Prometheus v0.316.0 (a Go module) is v3.16.0, KEDA has no `v`."""
    version = {row.name: row for row in FAMILY_OF.values()}[family].pinned(_RELEASES[family])
    if family == "keda":
        return version.removeprefix("v")
    if family == "prometheus":
        _, number, patch = version.split(".")
        return f"v{int(number) // 100}.{int(number) % 100}.{patch}"
    return version
