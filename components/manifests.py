"""What our Kubernetes objects have in common, and how they follow their component."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pulumi

from llmd.vllm import Variable

# A Kubernetes object or a part of one: a dictionary with the keys of the API. The SDK's own types spell them in
# snake_case, and then a controller could not use what we write; the program's tests hold every object against the
# published schemas instead.
Manifest: TypeAlias = Any
PATCH_FORCE = "pulumi.com/patchForce"  # win a field that another manager owns; never where a scaler owns replicas
SKIP_AWAIT = "pulumi.com/skipAwait"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """As whom a pod's containers run; both None where the platform assigns ids."""

    run_as_user: int | None = None
    fs_group: int | None = None


@dataclass(frozen=True, kw_only=True)
class Compute:
    """CPU and memory of one container, as Kubernetes quantities."""

    cpu: str
    memory: str


@dataclass(frozen=True, kw_only=True)
class ImagePull:
    """How images are fetched."""

    policy: str = "IfNotPresent"
    secrets: tuple[str, ...] = ()


def metadata(
    name: pulumi.Input[str],
    namespace: str | None,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """ObjectMeta; `namespace` is None for cluster-scoped objects."""
    meta: Manifest = {"name": name, "labels": dict(labels)}
    if namespace is not None:
        meta["namespace"] = namespace
    if annotations:
        meta["annotations"] = dict(annotations)
    return meta


def role_reference(kind: str, name: pulumi.Input[str]) -> Manifest:
    """RoleRef of a binding; `kind` is Role or ClusterRole."""
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}


def service_account_subject(account: str, namespace: str) -> Manifest:
    """Subject of a binding."""
    return {"kind": "ServiceAccount", "name": account, "namespace": namespace}


def pod_basics(identity: Identity, pull: ImagePull) -> Manifest:
    """Security context and image pull secrets of a PodSpec."""
    context: Manifest = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if identity.run_as_user is not None:
        context["runAsUser"] = identity.run_as_user
    if identity.fs_group is not None:
        # a volume of hundreds of gigabytes is not re-labelled on every mount
        context |= {"fsGroup": identity.fs_group, "fsGroupChangePolicy": "OnRootMismatch"}
    basics: Manifest = {"securityContext": context}
    if pull.secrets:
        basics["imagePullSecrets"] = [{"name": secret} for secret in pull.secrets]
    return basics


def container_security() -> Manifest:
    """SecurityContext of every container of ours: no privilege that it could gain."""
    return {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}


def variables(wanted: Iterable[Variable]) -> list[Manifest]:
    """`env` of a container."""
    return [_variable(variable) for variable in wanted]


def _variable(variable: Variable) -> Manifest:
    if variable.field_path is not None:
        return {"name": variable.name, "valueFrom": {"fieldRef": {"fieldPath": variable.field_path}}}
    if variable.secret is not None:
        secret, key = variable.secret
        return {"name": variable.name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
    return {"name": variable.name, "value": variable.value}


def resources(compute: Compute, extended: Mapping[str, int] | None = None) -> Manifest:
    """Requests, and limits on what cannot be shared. CPU has no limit: throttling would show as time to first token."""
    counted = {name: str(count) for name, count in (extended or {}).items()}
    return {
        "requests": {"cpu": compute.cpu, "memory": compute.memory, **counted},
        "limits": {"memory": compute.memory, **counted},
    }


@dataclass(frozen=True, kw_only=True)
class Often:
    """How often a probe asks, in seconds, and after how many failures it acts."""

    period: int
    timeout: int
    failures: int
    initial: int = 0

    def probe(self, handler: Manifest) -> Manifest:
        """The probe that asks `handler` so often."""
        asked: Manifest = {
            **handler,
            "periodSeconds": self.period,
            "timeoutSeconds": self.timeout,
            "failureThreshold": self.failures,
        }
        if self.initial:
            asked["initialDelaySeconds"] = self.initial
        return asked


def get(path: str, port: str | int) -> Manifest:
    """A probe's handler: HTTP GET."""
    return {"httpGet": {"path": path, "port": port}}


def container_port(name: str, number: int) -> Manifest:
    """A named TCP port of a container."""
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def service_port(name: str, number: int, target: str | int, node_port: int | None = None) -> Manifest:
    """A TCP port of a Service."""
    port: Manifest = {"name": name, "port": number, "targetPort": target, "protocol": "TCP"}
    if node_port is not None:
        port["nodePort"] = node_port
    return port


def children(component: pulumi.ComponentResource, opts: pulumi.ResourceOptions | None) -> pulumi.ResourceOptions:
    """Options of a component's children: they come after all that the component depends on.

    The engine hands down providers from a component to its children, but not `depends_on`.
    """
    return pulumi.ResourceOptions(parent=component, depends_on=opts.depends_on if opts else None)
