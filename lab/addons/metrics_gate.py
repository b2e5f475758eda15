"""The metrics gate: `thanos-querier.openshift-monitoring:9091`, Prometheus behind TLS and tokens as on OpenShift."""

from lab.addons.addon import Addon, Manifest, Site, Workload
from lab.addons.manifests import (
    cluster_role_binding,
    deployment,
    namespace,
    resources,
    service,
    service_account,
    soon_ready,
)
from lab.addons.prometheus import NAMESPACE
from lab.stand_ins.service_ca import WANTED_ANNOTATION

IMAGE = "lab.llm-d.ai/metrics-gate:1"
NAME = "thanos-querier"

_CERTIFICATE = f"{NAME}-tls"
_PORT = 9091


def _objects(_: Site) -> list[Manifest]:
    container = {
        "image": IMAGE,
        "args": [
            f"--listen=0.0.0.0:{_PORT}",
            f"--upstream=http://prometheus.{NAMESPACE}.svc.cluster.local.:9090",
            "--certificate=/etc/tls/private",
        ],
        "ports": [{"name": "web", "containerPort": _PORT}],
        "readinessProbe": soon_ready({"httpGet": {"path": "/healthz", "port": "web", "scheme": "HTTPS"}}),
        "resources": resources("24Mi", "128Mi"),
        "volumeMounts": [{"name": "certificate", "mountPath": "/etc/tls/private", "readOnly": True}],
    }
    door = service(
        NAME,
        NAMESPACE,
        {"app.kubernetes.io/name": NAME},
        [{"name": "web", "port": _PORT, "targetPort": "web"}],
    )
    door["metadata"]["annotations"] = {WANTED_ANNOTATION: _CERTIFICATE}
    return [
        namespace(NAMESPACE, **{"openshift.io/cluster-monitoring": "true"}),
        service_account(NAME, NAMESPACE),
        # May ask the API server who a token is and what its owner may do.
        cluster_role_binding(f"{NAME}-auth-delegator", "system:auth-delegator", NAME, NAMESPACE),
        deployment(
            NAME,
            NAMESPACE,
            container,
            serviceAccountName=NAME,
            volumes=[{"name": "certificate", "secret": {"secretName": _CERTIFICATE}}],
        ),
        door,
    ]


ADDON = Addon(name="metrics-gate", objects=_objects, workloads=(Workload("Deployment", NAMESPACE, NAME),))
