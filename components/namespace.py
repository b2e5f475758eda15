"""Which objects make a model's namespace."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.core.v1 import Namespace

from components.manifests import children, metadata
from llmd import labels
from llmd.names import Names


@dataclass(frozen=True, kw_only=True)
class ModelNamespaceArgs:
    """Whether the namespace is ours, and whether it stays when the stack goes."""

    names: Names
    create: bool
    retain: bool


class ModelNamespace(pulumi.ComponentResource):
    """The namespace of one model: made by us, or only used."""

    def __init__(self, name: str, args: ModelNamespaceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("llm-d:components:ModelNamespace", name, None, opts)
        if args.create:
            _namespace(args, children(self, opts))
        self.register_outputs({"namespace": args.names.namespace})


def _namespace(args: ModelNamespaceArgs, child: pulumi.ResourceOptions) -> Namespace:
    opts = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(retain_on_delete=args.retain))
    name = args.names.namespace
    return Namespace(name, metadata=metadata(name, None, labels.common(args.names, name)), opts=opts)
