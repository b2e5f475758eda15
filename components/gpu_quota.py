"""Which object stops a namespace from holding more GPUs than its fleets may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.core.v1 import ResourceQuota

from components.manifests import Manifest, children, metadata
from llmd import labels
from llmd.names import Names


@dataclass(frozen=True, kw_only=True)
class GpuQuotaArgs:
    """GPUs by resource name, e.g. {"nvidia.com/gpu": 20}: every fleet at its maximum, and the headroom."""

    names: Names
    gpus: Mapping[str, int]


class GpuQuota(pulumi.ComponentResource):
    """The hard stop: whatever a scaler, a rollout or a person asks for, the namespace holds no more GPUs than this."""

    def __init__(self, name: str, args: GpuQuotaArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("llm-d:components:GpuQuota", name, None, opts)
        _quota(args, children(self, opts))
        self.register_outputs({"quota": args.names.quota})


def quota_spec(gpus: Mapping[str, int]) -> Manifest:
    """ResourceQuotaSpec: extended resources are counted by their requests."""
    return {"hard": {f"requests.{resource}": str(count) for resource, count in sorted(gpus.items())}}


def _quota(args: GpuQuotaArgs, child: pulumi.ResourceOptions) -> ResourceQuota:
    names = args.names
    return ResourceQuota(
        names.quota,
        metadata=metadata(names.quota, names.namespace, labels.common(names, names.quota)),
        spec=quota_spec(args.gpus),
        opts=child,
    )
