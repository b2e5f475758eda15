"""The composition root: an environment's models, and what it tells about itself."""

from __future__ import annotations

import pulumi
from pulumi_random import RandomString

from llmd.outputs import EnvironmentOutputs, ModelOutputs
from stacks.model_stack import ModelStackArgs, ModelStackResources
from stacks.schema import Environment

SUFFIX_LENGTH = 6  # 36^6: two stacks of one cluster will not meet


def build(environment: Environment) -> pulumi.Output[EnvironmentOutputs]:
    """Register everything that the environment consists of.

    Objects go to the cluster of the stack's `kubernetes:` configuration, else of the ambient KUBECONFIG and its
    current context: the provider's own rules, so that what `kubectl` shows is what changes.
    """
    # Two stacks in one cluster may have the same namespaces and models after one another; kept in state, it never
    # changes.
    suffix = RandomString("suffix", length=SUFFIX_LENGTH, special=False, upper=False).result
    models = [
        ModelStackResources(key, ModelStackArgs(key=key, environment=environment, suffix=suffix))
        for key in environment.models
    ]
    return pulumi.Output.all(*(model.outputs for model in models)).apply(lambda all_of: _outputs(environment, all_of))


def _outputs(environment: Environment, models: list[ModelOutputs]) -> EnvironmentOutputs:
    return EnvironmentOutputs(
        environment=pulumi.get_stack(),
        router_version=environment.router.version,
        engine_name=environment.engine.name,
        engine_version=environment.engine.version,
        prometheus_address=environment.prometheus.address,
        models=tuple(models),
    )
