"""Which object is a long-lived token of a service account."""

from __future__ import annotations

import pulumi
from pulumi_kubernetes.core.v1 import Secret

from components.manifests import metadata
from llmd import labels
from llmd.names import Names


def token_secret(names: Names, name: str, account: str, child: pulumi.ResourceOptions) -> Secret:
    """A Secret that the cluster fills with a token of `account`; the engine waits until it is there.

    Prometheus and KEDA read tokens from Secrets. On OpenShift the service CA comes with it, as `service-ca.crt`.
    """
    annotations = {"kubernetes.io/service-account.name": account}
    meta = metadata(name, names.namespace, labels.common(names, name), annotations)
    return Secret(name, metadata=meta, type="kubernetes.io/service-account-token", opts=child)
