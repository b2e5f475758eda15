"""Which objects make a model's router."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import Deployment
from pulumi_kubernetes.core.v1 import ConfigMap, Secret, Service, ServiceAccount
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding

from components.manifests import PATCH_FORCE, Manifest, children, metadata, role_reference, service_account_subject
from components.router_objects import (
    RouterPod,
    cluster_role_rules,
    deployment_spec,
    external_service_spec,
    pool_spec,
    role_rules,
    service_spec,
)
from components.tokens import token_secret
from llmd import envoy, epp_config, labels
from llmd.dialects import RouterDialect
from llmd.names import Names
from llmd.rates import Rates


@dataclass(frozen=True, kw_only=True)
class RouterArgs:
    """What a router must know; plain values shape the graph, an `Input` may arrive later."""

    pod: RouterPod
    dialect: RouterDialect
    choose: Callable[[Rates, RouterDialect], dict[str, object]]  # the picker's configuration for the topology
    rates: pulumi.Input[Rates]
    service_type: str  # ClusterIP: no client from outside
    node_port: int | None
    suffix: pulumi.Input[str]  # the stack's own, for names that no namespace keeps apart


class Router(pulumi.ComponentResource):
    """Endpoint picker and Envoy in one pod, and the InferencePool that tells them which pods serve."""

    endpoint: str  # base URL of the OpenAI-compatible API inside the cluster
    picker_config: pulumi.Output[str]  # the text that the picker reads
    metrics_token: Secret  # as whom Prometheus reads the picker's metrics

    def __init__(self, name: str, args: RouterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("llm-d:components:Router", name, None, opts)
        child = children(self, opts)
        names = args.pod.names
        self.endpoint = names.endpoint
        self.picker_config = pulumi.Output.from_input(args.rates).apply(
            lambda rates: epp_config.render(args.choose(rates, args.dialect))
        )
        account = _service_account(names, child)
        access = [*_namespace_access(names, account, child), *_metrics_access(names, args.suffix, account, child)]
        self.metrics_token = token_secret(names, names.router_metrics_token, names.router, _after(child, account))
        picker_config = _picker_config(names, self.picker_config, child)
        envoy_config = _envoy_config(names, child)
        pool = _pool(names, child)
        deployment = _deployment(args.pod, picker_config, envoy_config, _after(child, *access, pool))
        _service(names, _after(child, deployment))
        if args.service_type != "ClusterIP":
            _external_service(args, _after(child, deployment))
        self.register_outputs({"endpoint": self.endpoint})


def _after(child: pulumi.ResourceOptions, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=list(resources)))


def _meta(names: Names, name: pulumi.Input[str]) -> Manifest:
    return metadata(name, names.namespace, labels.router(names))


def _service_account(names: Names, child: pulumi.ResourceOptions) -> ServiceAccount:
    return ServiceAccount(names.router, metadata=_meta(names, names.router), opts=child)


def _namespace_access(names: Names, account: ServiceAccount, child: pulumi.ResourceOptions) -> tuple[Role, RoleBinding]:
    meta = _meta(names, names.router)
    role = Role(names.router, metadata=meta, rules=role_rules(), opts=child)
    binding = RoleBinding(
        names.router,
        metadata=meta,
        role_ref=role_reference("Role", names.router),
        subjects=[service_account_subject(names.router, names.namespace)],
        opts=_after(child, role, account),
    )
    return role, binding


def _metrics_access(
    names: Names, suffix: pulumi.Input[str], account: ServiceAccount, child: pulumi.ResourceOptions
) -> tuple[ClusterRole, ClusterRoleBinding]:
    name = pulumi.Output.from_input(suffix).apply(names.router_cluster_role)
    meta = metadata(name, None, labels.router(names))
    logical = f"{names.router}-metrics"
    role = ClusterRole(logical, metadata=meta, rules=cluster_role_rules(), opts=child)
    binding = ClusterRoleBinding(
        logical,
        metadata=meta,
        role_ref=role_reference("ClusterRole", name),
        subjects=[service_account_subject(names.router, names.namespace)],
        opts=_after(child, role, account),
    )
    return role, binding


def _picker_config(names: Names, text: pulumi.Output[str], child: pulumi.ResourceOptions) -> ConfigMap:
    # Named by its content: another rate is another map, the pod rolls onto it, and the old map goes when no pod needs
    # it.
    meta = _meta(names, text.apply(names.router_config))
    return ConfigMap(f"{names.router}-config", metadata=meta, data={epp_config.FILE_NAME: text}, opts=child)


def _envoy_config(names: Names, child: pulumi.ResourceOptions) -> ConfigMap:
    text = envoy.render(envoy.bootstrap())
    meta = _meta(names, names.envoy_config(text))
    return ConfigMap(f"{names.router}-envoy", metadata=meta, data={envoy.FILE_NAME: text}, opts=child)


def _pool(names: Names, child: pulumi.ResourceOptions) -> CustomResource:
    return CustomResource(
        names.pool,
        api_version="inference.networking.k8s.io/v1",
        kind="InferencePool",
        metadata=_meta(names, names.pool),
        spec=pool_spec(names),
        opts=child,
    )


def _deployment(
    pod: RouterPod, picker_config: ConfigMap, envoy_config: ConfigMap, child: pulumi.ResourceOptions
) -> Deployment:
    spec = pulumi.Output.all(picker_config.metadata.name, envoy_config.metadata.name).apply(
        lambda configs: deployment_spec(pod, *configs)
    )
    meta = metadata(pod.names.router, pod.names.namespace, labels.router(pod.names), {PATCH_FORCE: "true"})
    return Deployment(pod.names.router, metadata=meta, spec=spec, opts=child)


def _service(names: Names, child: pulumi.ResourceOptions) -> Service:
    return Service(names.router, metadata=_meta(names, names.router), spec=service_spec(names), opts=child)


def _external_service(args: RouterArgs, child: pulumi.ResourceOptions) -> Service:
    # Beside the inner Service, whose other ports a NodePort or LoadBalancer would open as well. Other labels: it is
    # not scraped.
    names = args.pod.names
    name = names.router_external
    spec = external_service_spec(names, args.service_type, args.node_port)
    return Service(name, metadata=metadata(name, names.namespace, labels.common(names, name)), spec=spec, opts=child)
