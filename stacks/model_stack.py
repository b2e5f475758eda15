"""How the parts of one model are put together."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.autoscaling import Autoscaling, AutoscalingArgs, Bounds
from components.gpu_quota import GpuQuota, GpuQuotaArgs
from components.keda_auth import OPEN, Access, OpenShiftThanos, OpenShiftThanosArgs
from components.model_cache import Claim, ModelCache, ModelCacheArgs
from components.model_servers import (
    CoLocatedServers,
    CoLocatedServersArgs,
    ModelServers,
    PrefillDecodeServers,
    PrefillDecodeServersArgs,
)
from components.monitoring import Monitoring, MonitoringArgs
from components.namespace import ModelNamespace, ModelNamespaceArgs
from components.router import Router, RouterArgs
from components.router_objects import RouterPod
from llmd import dialects, epp_config
from llmd.outputs import FleetOutputs, ModelOutputs, ScalerOutputs
from llmd.rates import Rates
from llmd.roles import Role
from stacks import derive, fleets
from stacks.derive import Scaling
from stacks.model_schema import ExistingClaim, ModelStack, NewClaim, PrefillDecode, Scale
from stacks.schema import Environment


@dataclass(frozen=True, kw_only=True)
class ModelStackArgs:
    """One model of an environment, and the environment's suffix for names that no namespace keeps apart."""

    key: str
    environment: Environment
    suffix: pulumi.Input[str]

    @property
    def stack(self) -> ModelStack:
        """The model's own configuration."""
        return self.environment.models[self.key]


class ModelStackResources(pulumi.ComponentResource):
    """Everything of one model, from its namespace to its scalers."""

    outputs: pulumi.Output[ModelOutputs]

    def __init__(self, name: str, args: ModelStackArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("llm-d:components:ModelStack", name, None, opts)
        self._args = args
        self._names = derive.names(args.key, args.stack)
        self._rates = pulumi.Output.from_input(derive.pinned_rates(args.stack))
        scaling = self._rates.apply(self._scaling)

        namespace = self._namespace()
        quota = self._quota(namespace)
        weights, cache = self._weights(namespace)
        servers = self._servers(weights, [namespace, quota, *cache])
        router = self._router(namespace)
        monitoring = self._monitoring(namespace, router)
        access, authentication = self._access(namespace)
        ready = [monitoring, *authentication, *servers.deployments.values()]
        scaler = self._autoscaling(scaling, access, ready)

        self.outputs = pulumi.Output.all(self._rates, scaling).apply(lambda both: self._outputs(*both, router, scaler))
        self.register_outputs({"endpoint": router.endpoint})

    def _scaling(self, rates: Rates) -> Scaling:
        environment = self._args.environment
        engine = dialects.engine(environment.engine.name, environment.engine.version)
        router = dialects.router(environment.router.version)
        scaling = derive.scaling_of(self._names, self._args.stack, rates, router, engine)
        for warning in scaling.warnings:
            pulumi.log.warn(f"models.{self._args.key}: {warning}", self)
        return scaling

    def _child(self, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(after))

    def _namespace(self) -> ModelNamespace:
        stack = self._args.stack
        retain = isinstance(stack.cache, NewClaim) and stack.cache.retain  # a claim cannot outlive its namespace
        args = ModelNamespaceArgs(names=self._names, create=stack.namespace.create, retain=retain)
        return ModelNamespace(self._args.key, args, self._child())

    def _quota(self, namespace: ModelNamespace) -> GpuQuota:
        gpus = derive.quota(self._args.key, self._args.environment)
        return GpuQuota(self._args.key, GpuQuotaArgs(names=self._names, gpus=gpus), self._child(namespace))

    def _weights(self, namespace: ModelNamespace) -> tuple[fleets.Weights, list[pulumi.Resource]]:
        environment, stack = self._args.environment, self._args.stack
        wanted = stack.cache
        if not isinstance(wanted, NewClaim | ExistingClaim):
            return fleets.Weights(model=stack.model.id, claim=None), []
        claim: Claim | str
        if isinstance(wanted, ExistingClaim):
            claim = wanted.existing_claim
        else:
            claim = Claim(
                size=wanted.size,
                storage_class=wanted.storage_class,
                access_mode=wanted.access_mode,
                retain=wanted.retain,
            )
        args = ModelCacheArgs(
            names=self._names,
            model_id=stack.model.id,
            revision=stack.model.revision,
            claim=claim,
            image=environment.images.model_server,
            pull=fleets.pull(environment),
            identity=fleets.identity(environment),
            hub=fleets.hub(environment),
            deadline_seconds=wanted.download_seconds,
        )
        cache = ModelCache(self._args.key, args, self._child(namespace))
        return fleets.Weights(model=cache.model_path, claim=cache.claim_name), [cache]

    def _servers(self, weights: fleets.Weights, after: list[pulumi.Resource]) -> ModelServers:
        def fleet(role: Role) -> fleets.Fleet:
            return fleets.fleet(self._args.environment, self._names, self._args.stack, role, weights)

        child = self._child(*after)
        if isinstance(self._args.stack.topology, PrefillDecode):
            both = PrefillDecodeServersArgs(names=self._names, prefill=fleet(Role.PREFILL), decode=fleet(Role.DECODE))
            return PrefillDecodeServers(self._args.key, both, child)
        one = CoLocatedServersArgs(names=self._names, server=fleet(Role.BOTH))
        return CoLocatedServers(self._args.key, one, child)

    def _router(self, namespace: ModelNamespace) -> Router:
        environment, stack = self._args.environment, self._args.stack
        split = isinstance(stack.topology, PrefillDecode)
        pod = RouterPod(
            names=self._names,
            picker_image=environment.images.endpoint_picker,
            envoy_image=environment.images.envoy,
            pull=fleets.pull(environment),
            identity=fleets.identity(environment),
            picker=fleets.compute(stack.router.endpoint_picker),
            envoy=fleets.compute(stack.router.envoy),
            drain_seconds=derive.drain_seconds(stack),
        )
        exposed = "NodePort" if stack.router.node_port is not None else stack.router.service_type
        args = RouterArgs(
            pod=pod,
            dialect=dialects.router(environment.router.version),
            choose=epp_config.prefill_decode if split else epp_config.co_located,
            rates=self._rates,
            service_type=exposed,
            node_port=stack.router.node_port,
            suffix=self._args.suffix,
        )
        return Router(self._args.key, args, self._child(namespace))

    def _monitoring(self, namespace: ModelNamespace, router: Router) -> Monitoring:
        args = MonitoringArgs(names=self._names, roles=tuple(self._args.stack.topology.fleets))
        return Monitoring(self._args.key, args, self._child(namespace, router.metrics_token))

    def _access(self, namespace: ModelNamespace) -> tuple[Access, list[pulumi.Resource]]:
        prometheus = self._args.environment.prometheus
        if prometheus.auth.kind == "none":
            return OPEN, []
        ca = (prometheus.ca.name, prometheus.ca.key) if prometheus.ca else None
        args = OpenShiftThanosArgs(names=self._names, ca=ca, suffix=self._args.suffix)
        authentication = OpenShiftThanos(self._args.key, args, self._child(namespace))
        return authentication.access, [authentication]

    def _autoscaling(
        self, scaling: pulumi.Output[Scaling], access: Access, ready: list[pulumi.Resource]
    ) -> Autoscaling:
        args = AutoscalingArgs(
            names=self._names,
            fleets={
                role: Bounds(minimum=fleet.minimum, maximum=fleet.maximum)
                for role, fleet in self._args.stack.topology.fleets.items()
                if isinstance(fleet.replicas, Scale)
            },
            triggers=scaling.apply(lambda known: known.triggers),
            behavior=derive.behavior(self._args.stack),
            address=self._args.environment.prometheus.address,
            access=access,
        )
        return Autoscaling(self._args.key, args, self._child(*ready))

    def _outputs(self, rates: Rates, scaling: Scaling, router: Router, scaler: Autoscaling) -> ModelOutputs:
        names, stack = self._names, self._args.stack
        return ModelOutputs(
            key=self._args.key,
            namespace=names.namespace,
            served_name=stack.model.id,
            topology=stack.topology.kind,
            endpoint=router.endpoint,
            pool=names.pool,
            router=names.router,
            rates=rates,
            fleets=tuple(
                FleetOutputs(
                    role=role,
                    deployment=names.deployment(role),
                    accelerator=fleet.accelerator,
                    gpus_per_replica=fleet.tensor_parallel,
                    minimum=fleet.minimum,
                    maximum=fleet.maximum,
                    scaler=ScalerOutputs(
                        scaled_object=scaler.scaled_objects[role],
                        hpa=names.hpa(role),
                        triggers=scaling.triggers[role],
                    )
                    if role in scaler.scaled_objects
                    else None,
                )
                for role, fleet in stack.topology.fleets.items()
            ),
        )
