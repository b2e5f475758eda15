"""Which objects scale the fleets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from components.keda_auth import Access
from components.manifests import Manifest, children, metadata
from llmd import hpa, labels
from llmd.names import Names
from llmd.roles import Role
from llmd.triggers import Trigger

Triggers = Mapping[Role, tuple[Trigger, ...]]
# KEDA counts failures from its own loop and from every sync of the HPA, so three are over within about a minute.
# Until then the HPA errs and holds; after it the fallback holds, and never below what runs.
FAILURE_THRESHOLD = 3


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Between how many replicas a fleet is scaled."""

    minimum: int
    maximum: int


@dataclass(frozen=True, kw_only=True)
class AutoscalingArgs:
    """Which fleets are scaled, on what and how fast."""

    names: Names
    fleets: Mapping[Role, Bounds]
    triggers: pulumi.Input[Triggers]
    behavior: hpa.Behavior
    address: str  # Prometheus, from inside the cluster
    access: Access


class Autoscaling(pulumi.ComponentResource):
    """A ScaledObject for each scaled fleet; KEDA turns it into an HPA."""

    scaled_objects: Mapping[Role, str]

    def __init__(self, name: str, args: AutoscalingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("llm-d:components:Autoscaling", name, None, opts)
        child = children(self, opts)
        for role in args.fleets:
            _scaled_object(args, role, child)
        self.scaled_objects = {role: args.names.deployment(role) for role in args.fleets}
        self.register_outputs({role.value: name for role, name in self.scaled_objects.items()})


def scaled_object_spec(args: AutoscalingArgs, role: Role, triggers: tuple[Trigger, ...]) -> Manifest:
    """ScaledObjectSpec of one fleet.

    No `pollingInterval`: it only drives 0 to 1, and a fleet never is at 0.
    """
    bounds = args.fleets[role]
    return {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": args.names.deployment(role)},
        "minReplicaCount": bounds.minimum,
        "maxReplicaCount": bounds.maximum,
        "fallback": {
            "failureThreshold": FAILURE_THRESHOLD,
            "replicas": bounds.minimum,
            "behavior": "currentReplicasIfHigher",  # `static` would shrink a busy fleet when Prometheus is away
        },
        "advanced": {
            "restoreToOriginalReplicaCount": False,  # a removed scaler leaves the fleet as it is
            "horizontalPodAutoscalerConfig": {"behavior": args.behavior.to_dict()},
        },
        "triggers": [_trigger(trigger, args.address, args.access) for trigger in triggers],
    }


def _trigger(trigger: Trigger, address: str, access: Access) -> Manifest:
    # An empty answer is an error and not 0: a source that is gone must never look like an idle one.
    asked = {
        "serverAddress": address,
        "query": trigger.query,
        "threshold": trigger.threshold,
        "ignoreNullValues": "false",
    }
    written: Manifest = {
        "type": "prometheus",
        "name": trigger.name,
        "metricType": trigger.metric_type,
        "metadata": asked,
    }
    if access.authentication is not None:
        written["authenticationRef"] = {"name": access.authentication}
        written["metadata"] = {**asked, "authModes": access.modes}
    return written


def _scaled_object(args: AutoscalingArgs, role: Role, child: pulumi.ResourceOptions) -> CustomResource:
    names = args.names
    name = names.deployment(role)
    spec = pulumi.Output.from_input(args.triggers).apply(lambda all_of: scaled_object_spec(args, role, all_of[role]))
    return CustomResource(
        name,
        api_version="keda.sh/v1alpha1",
        kind="ScaledObject",
        metadata=metadata(name, names.namespace, labels.model_server(names, role)),
        spec=spec,
        opts=child,
    )
