"""What the Kubernetes objects of one model's router say."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
from llmd import drain, envoy, epp_config, labels, router, vllm
from llmd.names import Names
from llmd.pool import Pool
from llmd.vllm import Variable

HTTP_PORT = "http"
EXT_PROC_PORT = "grpc-ext-proc"
METRICS_PORT = "http-metrics"
_WATCH = ["get", "list", "watch"]
_THREADS_PER_CPU = 2  # of Envoy; upstream's guides run 8 on a request of 4
_HOME = Variable(name="HOME", value=vllm.HOME)


@dataclass(frozen=True, kw_only=True)
class RouterPod:
    """What the router's pod is made of. `drain_seconds` is the longest that a stream through it may still take."""

    names: Names
    picker_image: str
    envoy_image: str
    pull: ImagePull
    identity: Identity
    picker: Compute
    envoy: Compute
    drain_seconds: int


def deployment_spec(pod: RouterPod, picker_config: str, envoy_config: str) -> Manifest:
    """DeploymentSpec; the two configurations are names of ConfigMaps.

    One replica, since the picker counts tokens in flight in its own memory: a second one would know half of the load.
    A new one is ready before the old one leaves, because Envoy carries every stream.
    """
    return {
        "replicas": 1,
        "selector": {"matchLabels": labels.router_selector(pod.names)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {
            "metadata": {"labels": labels.router(pod.names)},
            "spec": {
                **pod_basics(pod.identity, pod.pull),
                "serviceAccountName": pod.names.router,
                "terminationGracePeriodSeconds": pod.drain_seconds + drain.MARGIN_SECONDS,
                "containers": [_picker(pod), _envoy(pod)],
                "volumes": [
                    {"name": "picker-config", "configMap": {"name": picker_config}},
                    {"name": "envoy-config", "configMap": {"name": envoy_config}},
                ],
            },
        },
    }


def service_spec(names: Names) -> Manifest:
    """ServiceSpec inside the cluster: the API, the picker for other proxies, and its metrics."""
    return {
        "type": "ClusterIP",
        "selector": labels.router_selector(names),
        "ports": [
            service_port(HTTP_PORT, 80, HTTP_PORT),
            service_port(EXT_PROC_PORT, router.EXT_PROC_PORT, EXT_PROC_PORT),
            service_port(METRICS_PORT, router.METRICS_PORT, METRICS_PORT),
        ],
    }


def external_service_spec(names: Names, service_type: str, node_port: int | None) -> Manifest:
    """ServiceSpec for clients outside the cluster: the API alone, never the picker or its metrics."""
    port = service_port(HTTP_PORT, 80, HTTP_PORT, node_port)
    return {"type": service_type, "selector": labels.router_selector(names), "ports": [port]}


def pool_spec(names: Names) -> Manifest:
    """InferencePoolSpec: every serving pod of the model, where prefill's vLLM and decode's sidecar listen."""
    return {
        "selector": {"matchLabels": labels.pool_selector(names)},
        "targetPorts": [{"number": vllm.SERVING_PORT}],
        "endpointPickerRef": {
            "name": names.router,
            "port": {"number": router.EXT_PROC_PORT},
            "failureMode": "FailOpen",  # what a gateway does while the picker restarts
        },
    }


def role_rules() -> list[Manifest]:
    """What the picker watches in its namespace."""
    objectives = ["inferenceobjectives", "inferencemodelrewrites"]
    return [
        {"apiGroups": [""], "resources": ["pods"], "verbs": _WATCH},
        {"apiGroups": ["inference.networking.k8s.io"], "resources": ["inferencepools"], "verbs": _WATCH},
        {"apiGroups": ["llm-d.ai", "inference.networking.x-k8s.io"], "resources": objectives, "verbs": _WATCH},
    ]


def cluster_role_rules() -> list[Manifest]:
    """What it takes to ask who scrapes the metrics and whether they may, and to be one who may."""
    return [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]


def _picker(pod: RouterPod) -> Manifest:
    config = f"{router.CONFIG_DIRECTORY}/{epp_config.FILE_NAME}"
    pool = Pool.of(pod.names)
    health: Manifest = {"grpc": {"port": router.GRPC_HEALTH_PORT, "service": router.HEALTH_SERVICE}}
    return {
        "name": "endpoint-picker",
        "image": pod.picker_image,
        "imagePullPolicy": pod.pull.policy,
        "args": router.picker_arguments(pool, config_path=config, drain_seconds=pod.drain_seconds),
        "env": variables([*router.picker_environment(), _HOME]),
        "ports": [
            container_port(EXT_PROC_PORT, router.EXT_PROC_PORT),
            container_port("grpc-health", router.GRPC_HEALTH_PORT),
            container_port(METRICS_PORT, router.METRICS_PORT),
        ],
        "resources": resources(pod.picker),
        "securityContext": container_security(),
        "livenessProbe": Often(period=10, timeout=5, failures=3, initial=5).probe(health),
        "readinessProbe": Often(period=2, timeout=2, failures=3).probe(health),
        "lifecycle": _stay(pod),
        "volumeMounts": [{"name": "picker-config", "mountPath": router.CONFIG_DIRECTORY, "readOnly": True}],
    }


def _envoy(pod: RouterPod) -> Manifest:
    threads = max(_THREADS_PER_CPU, math.ceil(_THREADS_PER_CPU * _cpus(pod.envoy.cpu)))
    return {
        "name": "envoy",
        "image": pod.envoy_image,
        "imagePullPolicy": pod.pull.policy,
        "args": envoy.arguments(drain_seconds=pod.drain_seconds, concurrency=threads),
        "env": variables([_HOME]),
        "ports": [container_port(HTTP_PORT, envoy.HTTP_PORT), container_port("ready", envoy.READY_PORT)],
        "resources": resources(pod.envoy),
        "securityContext": container_security(),
        "readinessProbe": Often(period=5, timeout=2, failures=2).probe(get(envoy.READY_PATH, envoy.READY_PORT)),
        "lifecycle": _stay(pod),
        "volumeMounts": [{"name": "envoy-config", "mountPath": envoy.CONFIG_DIRECTORY, "readOnly": True}],
    }


def _stay(pod: RouterPod) -> Manifest:
    """Both stay until the longest stream has ended: Envoy drops streams at SIGTERM, and each needs the picker."""
    return {"preStop": {"sleep": {"seconds": pod.drain_seconds}}}


def _cpus(quantity: str) -> float:
    """CPUs of a quantity, of which only thousandths and whole numbers make sense here."""
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)
