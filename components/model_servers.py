"""Which objects make the model servers: one fleet for both phases, or one for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import pulumi
from pulumi_kubernetes.apps.v1 import Deployment
from pulumi_kubernetes.core.v1 import Service, ServiceAccount
from pulumi_kubernetes.policy.v1 import PodDisruptionBudget

from components.manifests import PATCH_FORCE, children, metadata
from components.model_server_objects import Fleet, deployment_spec, disruption_spec, service_spec
from llmd import labels
from llmd.names import Names
from llmd.roles import Role


class ModelServers(Protocol):
    """Running model servers, whatever the topology."""

    deployments: Mapping[Role, Deployment]


@dataclass(frozen=True, kw_only=True)
class PrefillDecodeServersArgs:
    """A fleet for each phase; decode's has the routing sidecar."""

    names: Names
    prefill: Fleet
    decode: Fleet


class PrefillDecodeServers(pulumi.ComponentResource):
    """Prefill and decode in separate pods, with the KV cache going from one to the other."""

    deployments: Mapping[Role, Deployment]

    def __init__(self, name: str, args: PrefillDecodeServersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("llm-d:components:PrefillDecodeServers", name, None, opts)
        child = children(self, opts)
        account = _service_account(args.names, child)
        self.deployments = {
            Role.PREFILL: _fleet(args.prefill, account, child),
            Role.DECODE: _fleet(args.decode, account, child),
        }
        self.register_outputs({role.value: one.metadata.name for role, one in self.deployments.items()})


@dataclass(frozen=True, kw_only=True)
class CoLocatedServersArgs:
    """One fleet for both phases."""

    names: Names
    server: Fleet


class CoLocatedServers(pulumi.ComponentResource):
    """Both phases in every pod."""

    deployments: Mapping[Role, Deployment]

    def __init__(self, name: str, args: CoLocatedServersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("llm-d:components:CoLocatedServers", name, None, opts)
        child = children(self, opts)
        account = _service_account(args.names, child)
        self.deployments = {Role.BOTH: _fleet(args.server, account, child)}
        self.register_outputs({role.value: one.metadata.name for role, one in self.deployments.items()})


def _service_account(names: Names, child: pulumi.ResourceOptions) -> ServiceAccount:
    name = names.model_server_account
    meta = metadata(name, names.namespace, labels.common(names, name))
    return ServiceAccount(name, metadata=meta, automount_service_account_token=False, opts=child)


def _fleet(fleet: Fleet, account: ServiceAccount, child: pulumi.ResourceOptions) -> Deployment:
    after = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[account]))
    _service(fleet, child)
    _disruption_budget(fleet, child)
    return _deployment(fleet, after)


def _deployment(fleet: Fleet, child: pulumi.ResourceOptions) -> Deployment:
    scaled = fleet.replicas is None
    # One owner of the count: a scaler (then we neither say it nor look at it), or we (then we take it back from
    # whoever changed it).
    annotations = None if scaled else {PATCH_FORCE: "true"}
    opts = pulumi.ResourceOptions.merge(
        child,
        pulumi.ResourceOptions(ignore_changes=["spec.replicas"] if scaled else None, custom_timeouts=_timeouts(fleet)),
    )
    meta = metadata(fleet.name, fleet.names.namespace, labels.model_server(fleet.names, fleet.role), annotations)
    return Deployment(fleet.name, metadata=meta, spec=deployment_spec(fleet), opts=opts)


def _timeouts(fleet: Fleet) -> pulumi.CustomTimeouts:
    """As long as Kubernetes itself goes on trying: each replica of a rollout has its own budget."""
    spec, timing = deployment_spec(fleet), fleet.timing
    start = spec["progressDeadlineSeconds"]
    replica = start + timing.grace
    return pulumi.CustomTimeouts(create=f"{start}s", update=f"{replica * fleet.most}s", delete=f"{timing.grace + 300}s")


def _service(fleet: Fleet, child: pulumi.ResourceOptions) -> Service:
    meta = metadata(fleet.name, fleet.names.namespace, labels.model_server(fleet.names, fleet.role))
    return Service(fleet.name, metadata=meta, spec=service_spec(fleet), opts=child)


def _disruption_budget(fleet: Fleet, child: pulumi.ResourceOptions) -> PodDisruptionBudget:
    meta = metadata(fleet.name, fleet.names.namespace, labels.model_server(fleet.names, fleet.role))
    return PodDisruptionBudget(fleet.name, metadata=meta, spec=disruption_spec(fleet), opts=child)
