"""Which objects let KEDA ask Prometheus."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import Secret, ServiceAccount
from pulumi_kubernetes.rbac.v1 import ClusterRoleBinding

from components.manifests import Manifest, children, metadata, role_reference, service_account_subject
from components.tokens import token_secret
from llmd import labels
from llmd.names import Names

MONITORING_VIEW = "cluster-monitoring-view"  # OpenShift's own ClusterRole: read every metric
SERVICE_CA = "service-ca.crt"  # OpenShift puts it into every token Secret


@dataclass(frozen=True, kw_only=True)
class Access:
    """How a trigger refers to credentials; both None where Prometheus asks for none."""

    authentication: str | None = None  # a TriggerAuthentication
    modes: str | None = None  # KEDA's `authModes`


OPEN = Access()  # auth kind `none`


@dataclass(frozen=True, kw_only=True)
class OpenShiftThanosArgs:
    """Whose certificate to trust: that of OpenShift's service CA unless `ca` names another Secret and key."""

    names: Names
    ca: tuple[str, str] | None
    suffix: pulumi.Input[str]


class OpenShiftThanos(pulumi.ComponentResource):
    """A service account that may read OpenShift's metrics, and its token where KEDA finds it."""

    access: Access

    def __init__(self, name: str, args: OpenShiftThanosArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("llm-d:components:OpenShiftThanos", name, None, opts)
        child = children(self, opts)
        account = _service_account(args.names, child)
        after = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[account]))
        binding = _binding(args.names, args.suffix, after)
        token = token_secret(args.names, args.names.keda_token, args.names.keda_account, after)
        _trigger_authentication(args, token, binding, child)
        self.access = Access(authentication=args.names.trigger_authentication, modes="bearer")
        self.register_outputs({"authentication": self.access.authentication})


def trigger_authentication_spec(names: Names, ca: tuple[str, str] | None) -> Manifest:
    """TriggerAuthenticationSpec: the bearer token, and the CA that signed Prometheus's certificate."""
    secret, key = ca or (names.keda_token, SERVICE_CA)
    return {
        "secretTargetRef": [
            {"parameter": "bearerToken", "name": names.keda_token, "key": "token"},
            {"parameter": "ca", "name": secret, "key": key},
        ]
    }


def _service_account(names: Names, child: pulumi.ResourceOptions) -> ServiceAccount:
    name = names.keda_account
    meta = metadata(name, names.namespace, labels.common(names, name))
    return ServiceAccount(name, metadata=meta, automount_service_account_token=False, opts=child)


def _binding(names: Names, suffix: pulumi.Input[str], child: pulumi.ResourceOptions) -> ClusterRoleBinding:
    name = pulumi.Output.from_input(suffix).apply(names.keda_cluster_role)
    return ClusterRoleBinding(
        names.keda_account,
        metadata=metadata(name, None, labels.common(names, names.keda_account)),
        role_ref=role_reference("ClusterRole", MONITORING_VIEW),
        subjects=[service_account_subject(names.keda_account, names.namespace)],
        opts=child,
    )


def _trigger_authentication(
    args: OpenShiftThanosArgs, token: Secret, binding: ClusterRoleBinding, child: pulumi.ResourceOptions
) -> CustomResource:
    names = args.names
    return CustomResource(
        names.trigger_authentication,
        api_version="keda.sh/v1alpha1",
        kind="TriggerAuthentication",
        metadata=metadata(
            names.trigger_authentication, names.namespace, labels.common(names, names.trigger_authentication)
        ),
        spec=trigger_authentication_spec(names, args.ca),
        opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[token, binding])),
    )
