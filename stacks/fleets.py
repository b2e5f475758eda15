"""How one fleet's configuration becomes the values that its objects are made of."""

from __future__ import annotations

from dataclasses import dataclass

from components.manifests import Compute, Identity, ImagePull
from components.model_server_objects import Fleet, Gpus, Sidecar, Timing
from llmd import dialects, drain, router, vllm
from llmd.names import Names
from llmd.roles import Role
from llmd.vllm import Variable
from stacks import derive
from stacks.model_schema import Fleet as FleetConfig
from stacks.model_schema import ModelStack, Resources, Scale
from stacks.schema import Environment


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Where a model server finds the weights: a directory on a claim, or (claim None) the hub."""

    model: str
    claim: str | None


def pull(environment: Environment) -> ImagePull:
    """How images are fetched."""
    return ImagePull(policy=environment.images.pull_policy, secrets=environment.images.pull_secrets)


def identity(environment: Environment) -> Identity:
    """As whom containers run."""
    return Identity(run_as_user=environment.pods.run_as_user, fs_group=environment.pods.fs_group)


def hub(environment: Environment) -> vllm.Hub:
    """Where weights come from."""
    token = environment.hub.token_secret
    return vllm.Hub(endpoint=environment.hub.endpoint, token=(token.name, token.key) if token else None)


def compute(resources: Resources) -> Compute:
    """CPU and memory of a container."""
    return Compute(cpu=resources.cpu, memory=resources.memory)


def fleet(environment: Environment, names: Names, stack: ModelStack, role: Role, weights: Weights) -> Fleet:
    """The values of one role's model servers."""
    config = stack.topology.fleets[role]
    source = hub(environment) if weights.claim is None else None
    extra = tuple(Variable(name=name, value=value) for name, value in config.extra_env.items())
    return Fleet(
        names=names,
        role=role,
        image=environment.images.model_server,
        pull=pull(environment),
        identity=identity(environment),
        arguments=_arguments(environment, stack, role, weights),
        environment=(*vllm.environment(role, source), *extra),
        compute=compute(config.resources),
        shared_memory=config.shared_memory,
        gpus=_gpus(environment, config),
        timing=_timing(stack, config),
        claim=weights.claim,
        sidecar=_sidecar(environment) if role is Role.DECODE else None,
        surge=stack.rollout.strategy == "surge",
        replicas=None if isinstance(config.replicas, Scale) else config.replicas,
        most=config.maximum,
    )


def _arguments(environment: Environment, stack: ModelStack, role: Role, weights: Weights) -> tuple[str, ...]:
    config, model = stack.topology.fleets[role], stack.model
    server = vllm.Server(
        model=weights.model,
        served_name=model.id,
        revision=model.revision if weights.claim is None else None,
        dtype=model.dtype,
        max_model_len=model.max_model_len,
        max_batched_tokens=model.max_batched_tokens,
        tensor_parallel=config.tensor_parallel,
        gpu_memory_utilization=config.gpu_memory_utilization,
        max_num_seqs=config.max_num_seqs,
        shutdown_seconds=derive.drain_seconds(stack),
        block_size=model.block_size,
        extra=config.extra_args,
    )
    engine = dialects.engine(environment.engine.name, environment.engine.version)
    return tuple(vllm.arguments(role, server, engine))


def _gpus(environment: Environment, config: FleetConfig) -> Gpus:
    accelerator = environment.accelerators[config.accelerator]
    return Gpus(
        resource=accelerator.resource,
        count=config.tensor_parallel,
        node_selector=accelerator.node_selector,
        tolerations=tuple(
            toleration.model_dump(by_alias=True, exclude_none=True) for toleration in accelerator.tolerations
        ),
        runtime_class=accelerator.runtime_class,
    )


def _timing(stack: ModelStack, config: FleetConfig) -> Timing:
    # the engine drains after SIGTERM by its own shutdown timeout, so the two waits come one after the other
    leaving = derive.PRE_STOP_SECONDS + derive.drain_seconds(stack)
    return Timing(
        startup_period=config.startup.period_seconds,
        startup_failures=config.startup.failure_threshold,
        readiness_period=config.startup.readiness_period_seconds,
        pre_stop=derive.PRE_STOP_SECONDS,
        grace=drain.grace_seconds(drain=leaving),
    )


def _sidecar(environment: Environment) -> Sidecar:
    dialect = dialects.router(environment.router.version)
    return Sidecar(image=environment.images.routing_sidecar, arguments=tuple(router.sidecar_arguments(dialect)))
