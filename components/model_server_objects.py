"""What the Kubernetes objects of one fleet of model servers say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from components.manifests import (
    Compute,
    Identity,
    ImagePull,
    Manifest,
    Often,
    container_port,
    container_security,
    get,
    pod_basics,
    resources,
    service_port,
    variables,
)
from llmd import labels, vllm
from llmd.names import Names
from llmd.roles import Role
from llmd.vllm import Variable

MODEL_SERVER_PORT = "modelserver"  # the name under which monitors and probes find vLLM, also behind the sidecar
SIDECAR_PORT = "sidecar"
NIXL_PORT = "nixl"
# How far a Deployment may fall behind its startup budget before Kubernetes calls it stuck: image pull and scheduling
# come on top.
PROGRESS_MARGIN_SECONDS = 600
# The sidecar copies streams; what it holds is one request body per request in flight. Upstream sets nothing, and then
# a node under pressure evicts the pod for its smallest container.
SIDECAR_COMPUTE = Compute(cpu="100m", memory="256Mi")


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """The GPUs of one replica and the nodes that have them."""

    resource: str
    count: int
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str | int], ...] = ()
    runtime_class: str | None = None


@dataclass(frozen=True, kw_only=True)
class Timing:
    """When a server must be up, how often it is asked, and how long it may take to leave, in seconds."""

    startup_period: int
    startup_failures: int
    readiness_period: int
    pre_stop: int
    grace: int

    @property
    def startup_budget(self) -> int:
        """Longest start."""
        return self.startup_period * self.startup_failures


@dataclass(frozen=True, kw_only=True)
class Sidecar:
    """The routing sidecar in front of a decode server."""

    image: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """One role's model servers. `replicas` is None where a scaler owns the count; `claim` None where pods download."""

    names: Names
    role: Role
    image: str
    pull: ImagePull
    identity: Identity
    arguments: tuple[str, ...]
    environment: tuple[Variable, ...]
    compute: Compute
    shared_memory: str
    gpus: Gpus
    timing: Timing
    claim: str | None
    sidecar: Sidecar | None
    surge: bool
    replicas: int | None
    most: int  # replicas that a rollout may have to replace

    @property
    def name(self) -> str:
        """Deployment, headless Service and PodDisruptionBudget."""
        return self.names.deployment(self.role)


def deployment_spec(fleet: Fleet) -> Manifest:
    """DeploymentSpec of the fleet."""
    # surge: the new pod serves before an old one leaves; in place: no spare GPU is needed, and one replica's capacity
    # is missing
    rolling = {"maxSurge": 1, "maxUnavailable": 0} if fleet.surge else {"maxSurge": 0, "maxUnavailable": 1}
    spec: Manifest = {
        "selector": {"matchLabels": labels.role_selector(fleet.names, fleet.role)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        "progressDeadlineSeconds": fleet.timing.startup_budget + PROGRESS_MARGIN_SECONDS,
        "template": {
            "metadata": {"labels": labels.model_server(fleet.names, fleet.role)},
            "spec": pod_spec(fleet),
        },
    }
    if fleet.replicas is not None:
        spec["replicas"] = fleet.replicas
    return spec


def pod_spec(fleet: Fleet) -> Manifest:
    """PodSpec of one replica."""
    spec: Manifest = {
        **pod_basics(fleet.identity, fleet.pull),
        "serviceAccountName": fleet.names.model_server_account,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": fleet.timing.grace,
        "containers": [_model_server(fleet)],
        "volumes": _volumes(fleet),
    }
    if fleet.sidecar is not None:
        spec["initContainers"] = [_routing_proxy(fleet, fleet.sidecar)]
    if fleet.gpus.node_selector:
        spec["nodeSelector"] = dict(fleet.gpus.node_selector)
    if fleet.gpus.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in fleet.gpus.tolerations]
    if fleet.gpus.runtime_class is not None:
        spec["runtimeClassName"] = fleet.gpus.runtime_class
    return spec


def service_spec(fleet: Fleet) -> Manifest:
    """ServiceSpec of the headless Service, which gives each pod a name; traffic comes through the router."""
    ports = [(SIDECAR_PORT, vllm.SERVING_PORT)] if fleet.sidecar is not None else []
    return {
        "clusterIP": "None",
        "selector": labels.role_selector(fleet.names, fleet.role),
        "ports": [service_port(name, number, name) for name, number in [*ports, *_ports(fleet.role)]],
    }


def disruption_spec(fleet: Fleet) -> Manifest:
    """PodDisruptionBudgetSpec: a node drain takes one replica at a time, and none has to be spared for it to begin."""
    return {"maxUnavailable": 1, "selector": {"matchLabels": labels.role_selector(fleet.names, fleet.role)}}


def _ports(role: Role) -> list[tuple[str, int]]:
    serving = [(MODEL_SERVER_PORT, vllm.port(role))]
    return serving if role is Role.BOTH else [*serving, (NIXL_PORT, vllm.NIXL_PORT)]


def _model_server(fleet: Fleet) -> Manifest:
    timing = fleet.timing
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - where NCCL looks
    if fleet.claim is not None:
        mounts.append({"name": "model-cache", "mountPath": vllm.MODEL_CACHE, "readOnly": True})
    # Upstream's probes (Aug 2026): the model list answers only once the weights are loaded, and /health fails when
    # the engine has died.
    startup = Often(period=timing.startup_period, timeout=5, failures=timing.startup_failures)
    return {
        "name": "modelserver",
        "image": fleet.image,
        "imagePullPolicy": fleet.pull.policy,
        "command": list(vllm.COMMAND),
        "args": list(fleet.arguments),
        "env": variables(fleet.environment),
        "ports": [container_port(name, number) for name, number in _ports(fleet.role)],
        "resources": resources(fleet.compute, {fleet.gpus.resource: fleet.gpus.count}),
        "securityContext": container_security(),
        "startupProbe": startup.probe(get("/v1/models", MODEL_SERVER_PORT)),
        "livenessProbe": Often(period=10, timeout=5, failures=3).probe(get("/health", MODEL_SERVER_PORT)),
        "readinessProbe": Often(period=timing.readiness_period, timeout=2, failures=3).probe(
            get("/v1/models", MODEL_SERVER_PORT)
        ),
        "lifecycle": {"preStop": {"sleep": {"seconds": timing.pre_stop}}},
        "volumeMounts": mounts,
    }


def _routing_proxy(fleet: Fleet, sidecar: Sidecar) -> Manifest:
    """The sidecar as a native one: up before vLLM, and there until vLLM has sent its last token.

    Its own readiness matters to the pod's: the picker sends to the sidecar's port, while every other probe goes past
    it to vLLM.
    """
    return {
        "name": "routing-proxy",
        "image": sidecar.image,
        "imagePullPolicy": fleet.pull.policy,
        "restartPolicy": "Always",
        "args": list(sidecar.arguments),
        "ports": [container_port(SIDECAR_PORT, vllm.SERVING_PORT)],
        "resources": resources(SIDECAR_COMPUTE),
        "securityContext": container_security(),
        "readinessProbe": Often(period=fleet.timing.readiness_period, timeout=2, failures=3).probe(
            {"tcpSocket": {"port": SIDECAR_PORT}}
        ),
    }


def _volumes(fleet: Fleet) -> list[Manifest]:
    volumes: list[Manifest] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": fleet.shared_memory}},
    ]
    if fleet.claim is not None:
        claim = {"claimName": fleet.claim, "readOnly": True}
        volumes.append({"name": "model-cache", "persistentVolumeClaim": claim})
    return volumes
