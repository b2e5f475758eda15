"""Prometheus in namespace openshift-monitoring: prometheus-operator 0.85 and one server that takes every monitor.

The server answers plain HTTP at `prometheus.openshift-monitoring:9090`; its door with TLS and tokens is the metrics
gate.
"""

from lab.addons.addon import Addon, Manifest, Site, Workload
from lab.addons.manifests import (
    PART_OF,
    cluster_role,
    cluster_role_binding,
    go_runtime,
    namespace,
    parse,
    resources,
    rule,
    service,
    service_account,
    soon_ready,
)

OPERATOR_IMAGE = "quay.io/prometheus-operator/prometheus-operator:v0.85.0"
RELOADER_IMAGE = "quay.io/prometheus-operator/prometheus-config-reloader:v0.85.0"
PROMETHEUS_VERSION = "v3.16.0"  # the Go module calls the same release v0.316.0
PROMETHEUS_IMAGE = f"quay.io/prometheus/prometheus:{PROMETHEUS_VERSION}"
NAMESPACE = "openshift-monitoring"
NAME = "k8s"  # OpenShift's name for its own; roles that grant access to its API may name it

_MODULE = "github.com/prometheus-operator/prometheus-operator"
_OPERATOR = "prometheus-operator"
_ACCOUNT = "prometheus-k8s"

# What a Prometheus server is configured by. The operator does without the five others (agents, Alertmanagers, Thanos,
# scrape configs), and their definitions alone would cost the API server about 100 MB and the start several seconds.
_KINDS = ("podmonitors", "probes", "prometheuses", "prometheusrules", "servicemonitors")


def _operator(manifest: Manifest) -> Manifest:
    """One of the operator's own objects, in our namespace and size."""
    metadata = manifest["metadata"]
    if "namespace" in metadata:
        metadata["namespace"] = NAMESPACE
    for subject in manifest.get("subjects", ()):
        subject["namespace"] = NAMESPACE
    if manifest["kind"] == "Deployment":
        manifest["spec"] |= {"strategy": {"type": "Recreate"}, "revisionHistoryLimit": 1}
        pod = manifest["spec"]["template"]["spec"]
        pod["enableServiceLinks"] = False
        (container,) = pod["containers"]
        container |= {
            "image": OPERATOR_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            # It would also keep Endpoints of the kubelets, for metrics that nobody here scrapes.
            "args": [
                f"--prometheus-config-reloader={RELOADER_IMAGE}",
                "--config-reloader-cpu-request=5m",
                "--config-reloader-cpu-limit=0",
                "--config-reloader-memory-request=16Mi",
                "--config-reloader-memory-limit=64Mi",
            ],
            "env": go_runtime("64MiB"),
            "resources": resources("48Mi", "256Mi"),
            "readinessProbe": soon_ready({"httpGet": {"path": "/healthz", "port": "http"}}),
        }
    return manifest


def _server() -> Manifest:
    every: Manifest = {}  # an empty selector takes all; a missing one takes none, or only the own namespace
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": PART_OF},
        "spec": {
            "image": PROMETHEUS_IMAGE,
            "version": PROMETHEUS_VERSION,
            "imagePullPolicy": "IfNotPresent",
            "replicas": 1,
            "serviceAccountName": _ACCOUNT,
            "serviceDiscoveryRole": "EndpointSlice",
            "serviceMonitorSelector": every,
            "serviceMonitorNamespaceSelector": every,
            "podMonitorSelector": every,
            "podMonitorNamespaceSelector": every,
            "probeSelector": every,
            "probeNamespaceSelector": every,
            "ruleSelector": every,
            "ruleNamespaceSelector": every,
            "scrapeInterval": "15s",
            "evaluationInterval": "15s",
            "retention": "6h",
            "retentionSize": "512MB",
            "resources": resources("128Mi", "768Mi", cpu_request="50m"),
            "storage": {"emptyDir": {"sizeLimit": "1Gi"}},
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532},
            "terminationGracePeriodSeconds": 10,
            # Merged into what the operator writes: its probe every 15 s would waste most of that at each start.
            "containers": [
                {
                    "name": "prometheus",
                    "env": go_runtime("300MiB"),
                    "startupProbe": {"periodSeconds": 1, "failureThreshold": 300},
                },
                {"name": "config-reloader", "imagePullPolicy": "IfNotPresent"},
            ],
            "initContainers": [{"name": "init-config-reloader", "imagePullPolicy": "IfNotPresent"}],
        },
    }


def _access() -> list[Manifest]:
    """What the server may discover and scrape, and the role that OpenShift has for those who may ask it."""
    scrape = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    return [
        service_account(_ACCOUNT, NAMESPACE),
        cluster_role(
            _ACCOUNT,
            [
                rule([""], ["nodes", "services", "endpoints", "pods", "namespaces"], ["get", "list", "watch"]),
                rule(["discovery.k8s.io"], ["endpointslices"], ["get", "list", "watch"]),
                scrape,
            ],
        ),
        cluster_role_binding(_ACCOUNT, _ACCOUNT, _ACCOUNT, NAMESPACE),
        cluster_role(
            "cluster-monitoring-view",
            [
                rule([""], ["namespaces"], ["get"]),
                rule(["monitoring.coreos.com"], ["prometheuses/api"], ["get", "create", "update"])
                | {"resourceNames": [NAME]},
            ],
        ),
    ]


def _objects(site: Site) -> list[Manifest]:
    bundle = site.module_dir(_OPERATOR, _MODULE) / "bundle.yaml"
    definitions = [f"{kind}.monitoring.coreos.com" for kind in _KINDS]
    selector = {"app.kubernetes.io/name": "prometheus", "operator.prometheus.io/name": NAME}
    return [
        namespace(NAMESPACE, **{"openshift.io/cluster-monitoring": "true"}),
        *(_operator(manifest) for manifest in parse(bundle.read_text(), definitions)),
        *_access(),
        _server(),
        service("prometheus", NAMESPACE, selector, [{"name": "web", "port": 9090, "targetPort": "web"}]),
    ]


ADDON = Addon(
    name="prometheus",
    objects=_objects,
    workloads=(
        Workload("Deployment", NAMESPACE, _OPERATOR),
        Workload("StatefulSet", NAMESPACE, f"prometheus-{NAME}"),
    ),
    served={"monitoring.coreos.com/v1": _KINDS},
)
