"""How the objects of addons are written, and how manifests that a module ships are read."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import yaml

from lab.addons.addon import Manifest

PART_OF = {"app.kubernetes.io/part-of": "llm-d-lab"}


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: a plain `=` is a string (it is an enum value in one CRD)."""


_Loader.add_constructor("tag:yaml.org,2002:value", _Loader.construct_yaml_str)


def parse(text: str, names: Collection[str] | None = None) -> list[Manifest]:
    """The objects of a YAML stream; with `names`, only CustomResourceDefinitions of these names and all other kinds.

    A definition can have ten thousand lines, so one that is not wanted is told by its text and not parsed.
    """
    documents = (document for document in f"\n{text}".split("\n---") if document.strip())
    return [
        loaded
        for document in documents
        if names is None or "kind: CustomResourceDefinition" not in document or _named(document, names)
        if (loaded := yaml.load(document, Loader=_Loader))  # noqa: S506 - a subclass of the safe loader
    ]


def _named(document: str, names: Iterable[str]) -> bool:
    return any(f"\n  name: {name}\n" in f"{document}\n" for name in names)


def read(*files: Path) -> list[Manifest]:
    """The objects of YAML files."""
    return [manifest for file in files for manifest in parse(file.read_text())]


def namespace(name: str, **labels: str) -> Manifest:
    """A Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": PART_OF | labels}}


def service_account(name: str, namespace: str) -> Manifest:
    """A ServiceAccount."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def rule(groups: Sequence[str], resources: Sequence[str], verbs: Sequence[str]) -> dict[str, list[str]]:
    """One rule of a role."""
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}


def cluster_role(name: str, rules: Sequence[Manifest]) -> Manifest:
    """A ClusterRole."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": list(rules),
    }


def cluster_role_binding(name: str, role: str, account: str, namespace: str) -> Manifest:
    """A ClusterRoleBinding of one service account."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def service(name: str, namespace: str, selector: dict[str, str], ports: Sequence[Manifest], **spec: object) -> Manifest:
    """A Service."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": name} | PART_OF},
        "spec": {"selector": selector, "ports": list(ports)} | spec,
    }


def deployment(name: str, namespace: str, container: Manifest, **pod: object) -> Manifest:
    """A Deployment of one pod with one container, selected by `app.kubernetes.io/name: NAME`.

    Replaced rather than surged: nothing here has to answer during an update, and two cores have no room for two each.
    """
    labels = {"app.kubernetes.io/name": name}
    defaults = {"imagePullPolicy": "IfNotPresent", "securityContext": unprivileged()}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels | PART_OF},
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels | PART_OF},
                "spec": {
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 5,
                    "containers": [{"name": name} | defaults | container],
                }
                | pod,
            },
        },
    }


def unprivileged() -> Manifest:
    """Security context of a container that needs no right at all; the image's own user is a numeric one."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def resources(memory_request: str, memory_limit: str, cpu_request: str = "10m") -> Manifest:
    """Small requests, so that a two-core node has room for models; no CPU limit, which would only slow the start."""
    return {"requests": {"cpu": cpu_request, "memory": memory_request}, "limits": {"memory": memory_limit}}


def soon_ready(probe: Manifest) -> Manifest:
    """A readiness probe that notices within a second or two that a program is up.

    Once up, a failure is believed after 15 s: with two cores a probe can be late without anything being wrong.
    """
    return {"timeoutSeconds": 5, "periodSeconds": 2, "failureThreshold": 8} | probe


def go_runtime(limit: str) -> list[Manifest]:
    """Environment that keeps a Go program's heap small: it is collected hard near `limit` (`GOMEMLIMIT` syntax)."""
    return [{"name": "GOMEMLIMIT", "value": limit}, {"name": "GOGC", "value": "50"}]
