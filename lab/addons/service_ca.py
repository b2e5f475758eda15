"""The service CA: serving certificates for annotated Services, its own in every service account token Secret."""

from lab.addons.addon import Addon, Manifest, Site, Workload
from lab.addons.manifests import (
    cluster_role,
    cluster_role_binding,
    deployment,
    namespace,
    resources,
    rule,
    service_account,
    soon_ready,
)
from lab.stand_ins.service_ca import NAMESPACE

IMAGE = "lab.llm-d.ai/service-ca:1"

_NAME = "service-ca"


def _objects(_: Site) -> list[Manifest]:
    container = {
        "image": IMAGE,
        "args": ["--health-port=8080"],
        "ports": [{"name": "health", "containerPort": 8080}],
        "readinessProbe": soon_ready({"httpGet": {"path": "/healthz", "port": "health"}}),
        "resources": resources("24Mi", "128Mi"),
    }
    return [
        namespace(NAMESPACE),
        service_account(_NAME, NAMESPACE),
        cluster_role(
            f"system:openshift:controller:{_NAME}",
            [
                rule([""], ["secrets"], ["get", "list", "watch", "create", "update", "patch"]),
                rule([""], ["services"], ["get", "list", "watch"]),
            ],
        ),
        cluster_role_binding(
            f"system:openshift:controller:{_NAME}", f"system:openshift:controller:{_NAME}", _NAME, NAMESPACE
        ),
        deployment(
            _NAME,
            NAMESPACE,
            container,
            serviceAccountName=_NAME,
        ),
    ]


ADDON = Addon(name="service-ca", objects=_objects, workloads=(Workload("Deployment", NAMESPACE, _NAME),))
