"""CoreDNS: names of the cluster's own Services and pods, and nothing outside."""

import hashlib

from lab.addons.addon import Addon, Manifest, Site, Workload
from lab.addons.manifests import (
    cluster_role,
    cluster_role_binding,
    deployment,
    go_runtime,
    resources,
    rule,
    service,
    service_account,
    soon_ready,
)
from lab.node.network import CLUSTER_DNS

IMAGE = "registry.k8s.io/coredns/coredns:v1.14.7"

_NAMESPACE = "kube-system"
_PORT = 1053  # above 1023, so that the pod needs no capability; the Service maps 53 to it

# Two blocks, because within one CoreDNS asks `template` before `kubernetes`, wherever they stand. Whatever is not of
# the cluster does not exist: after a refusal, resolvers would try again and again before they give up. A short
# lifetime, so that a Service that was made again is found at once.
COREFILE = f"""\
cluster.local:{_PORT} in-addr.arpa:{_PORT} ip6.arpa:{_PORT} {{
    errors
    health :8080
    ready :8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 5
    }}
}}
.:{_PORT} {{
    errors
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


def _objects(_: Site) -> list[Manifest]:
    # A name by content, so that another configuration makes another pod.
    config = f"coredns-{hashlib.sha256(COREFILE.encode()).hexdigest()[:8]}"
    container = {
        "image": IMAGE,
        "args": ["-conf", "/etc/coredns/Corefile"],
        "env": go_runtime("48MiB"),
        "ports": [
            {"name": "dns", "containerPort": _PORT, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": _PORT, "protocol": "TCP"},
        ],
        "readinessProbe": soon_ready({"httpGet": {"path": "/ready", "port": 8181}}),
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "failureThreshold": 6, "timeoutSeconds": 5},
        "resources": resources("32Mi", "170Mi"),
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    return [
        service_account("coredns", _NAMESPACE),
        cluster_role(
            "system:coredns",
            [
                rule([""], ["services", "pods", "namespaces"], ["list", "watch"]),
                rule(["discovery.k8s.io"], ["endpointslices"], ["list", "watch"]),
            ],
        ),
        cluster_role_binding("system:coredns", "system:coredns", "coredns", _NAMESPACE),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": config, "namespace": _NAMESPACE},
            "data": {"Corefile": COREFILE},
        },
        deployment(
            "coredns",
            _NAMESPACE,
            container,
            serviceAccountName="coredns",
            priorityClassName="system-cluster-critical",
            dnsPolicy="Default",
            volumes=[{"name": "config", "configMap": {"name": config}}],
        ),
        service(
            "kube-dns",
            _NAMESPACE,
            {"app.kubernetes.io/name": "coredns"},
            [
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "dns"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": "dns-tcp"},
            ],
            clusterIP=CLUSTER_DNS,
        ),
    ]


ADDON = Addon(name="coredns", objects=_objects, workloads=(Workload("Deployment", _NAMESPACE, "coredns"),))
