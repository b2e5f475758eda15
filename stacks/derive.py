"""What follows from one model's configuration: names, rates, GPU demands, drain time and scaling triggers."""

from __future__ import annotations

from dataclasses import dataclass

from llmd import drain, gpus, hpa, scaling, triggers
from llmd.dialects import EngineDialect, RouterDialect
from llmd.names import Names
from llmd.pool import Fleet as FleetSeries
from llmd.rates import RateMode, Rates
from llmd.roles import Role
from llmd.triggers import Trigger
from stacks.model_schema import CoLocated, ModelStack, Pinned, ScaleDown, ScaleUp
from stacks.schema import Environment

# Between a pod's deletion timestamp and SIGTERM: the picker drops the pod at once, but a request that it had placed
# there before may still be on its way.
PRE_STOP_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """What each role's scaler asks, and what the operator should know about it."""

    triggers: dict[Role, tuple[Trigger, ...]]
    warnings: tuple[str, ...]


def names(key: str, stack: ModelStack) -> Names:
    """Kubernetes names of the model.

    Raises:
        llmd.names.InvalidNameError: the key or the namespace breaks a rule.
    """
    return Names(key, stack.namespace.name)


def pinned_rates(stack: ModelStack) -> Rates:
    """The record of pinned rates.

    Raises:
        llmd.rates.RateError: the numbers contradict each other.
        NotImplementedError: the rates are to be measured.
    """
    pinned = stack.calibration
    if not isinstance(pinned, Pinned):
        raise NotImplementedError("rates are measured by a component, not derived from configuration")
    return Rates(
        path=pinned.path_throughput, prefill=pinned.prefill_throughput, mode=RateMode.PINNED, source=pinned.source
    )


def demands(key: str, stack: ModelStack) -> tuple[gpus.Demand, ...]:
    """GPUs that each fleet asks for."""
    return tuple(
        gpus.Demand(
            model=key,
            role=role.value,
            accelerator=fleet.accelerator,
            gpus_per_replica=fleet.tensor_parallel,
            minimum=fleet.minimum,
            maximum=fleet.maximum,
        )
        for role, fleet in stack.topology.fleets.items()
    )


def accelerators(environment: Environment) -> tuple[gpus.Accelerator, ...]:
    """The GPUs that the environment may hold."""
    return tuple(
        gpus.Accelerator(name=name, per_node=one.per_node, nodes=one.nodes, budget=one.budget, headroom=one.headroom)
        for name, one in environment.accelerators.items()
    )


def quota(key: str, environment: Environment) -> dict[str, int]:
    """GPUs that the model's namespace may hold, by resource name: two accelerators may offer the same resource."""
    asked = demands(key, environment.models[key])
    found: dict[str, int] = {}
    for name, accelerator in environment.accelerators.items():
        of_it = [demand for demand in asked if demand.accelerator == name]
        if of_it:
            found[accelerator.resource] = found.get(accelerator.resource, 0) + gpus.quota(of_it, accelerator.headroom)
    return found


def drain_seconds(stack: ModelStack) -> int:
    """Longest that one admitted request may still take."""
    return drain.drain_seconds(
        ttft_seconds=stack.slo.ttft_seconds,
        max_output_tokens=stack.slo.max_output_tokens,
        inter_token_seconds=stack.slo.inter_token_seconds,
    )


def behavior(stack: ModelStack) -> hpa.Behavior:
    """How fast the HPA may change a fleet."""
    wanted = stack.autoscaling.behavior
    return hpa.Behavior(up=_rules(wanted.scale_up), down=_rules(wanted.scale_down))


def _rules(direction: ScaleUp | ScaleDown) -> hpa.Rules:
    policy = hpa.Policy(kind=hpa.PolicyKind.PODS, value=direction.pods, period_seconds=direction.period_seconds)
    return hpa.Rules(policies=(policy,), stabilization_seconds=direction.stabilization_seconds)


def slo(stack: ModelStack) -> scaling.Slo:
    """The promise that the backlog thresholds keep."""
    return scaling.Slo(
        ttft_seconds=stack.slo.ttft_seconds,
        uncached_tokens=stack.slo.input_tokens,
        statistic=stack.slo.ttft_statistic,
        token_estimate_ratio=stack.autoscaling.token_estimate_ratio,
    )


def scaling_of(names: Names, stack: ModelStack, rates: Rates, router: RouterDialect, engine: EngineDialect) -> Scaling:
    """Triggers of every role, whether a scaler uses them or its count is fixed.

    Raises:
        llmd.scaling.ScalingError: no number of replicas keeps the SLO, or a signal does not exist.
    """
    if isinstance(stack.topology, CoLocated):
        return _co_located(names, stack, rates, router, engine)
    return _prefill_decode(names, stack, rates, router, engine)


def _co_located(names: Names, stack: ModelStack, rates: Rates, router: RouterDialect, engine: EngineDialect) -> Scaling:
    fleet = FleetSeries.of(names, Role.BOTH)
    backlog = scaling.backlog_threshold(slo(stack), rates.path, stack.autoscaling.thresholds.prefill)
    signal, kv = _decode(stack, engine, prefill_decode=False)
    asked = (
        triggers.prefill_by_path(fleet, rates, backlog, router),
        triggers.decode(fleet, signal, kv, router, engine),
    )
    return Scaling(triggers={Role.BOTH: asked}, warnings=backlog.warnings)


def _prefill_decode(
    names: Names, stack: ModelStack, rates: Rates, router: RouterDialect, engine: EngineDialect
) -> Scaling:
    prefill, decode = FleetSeries.of(names, Role.PREFILL), FleetSeries.of(names, Role.DECODE)
    overrides = stack.autoscaling.thresholds
    signal, kv = _decode(stack, engine, prefill_decode=True)
    first = triggers.decode(decode, signal, kv, router, engine)
    if stack.autoscaling.prefill_signal == "path":
        backlog = scaling.backlog_threshold(slo(stack), rates.path, overrides.prefill)
        by_path = triggers.prefill_by_path(prefill, rates, backlog, router)
        return Scaling(triggers={Role.PREFILL: (by_path,), Role.DECODE: (first,)}, warnings=backlog.warnings)
    phases = scaling.phase_thresholds(
        slo(stack), rates, prefill_override=overrides.prefill, transfer_override=overrides.transfer
    )
    by_phase = triggers.prefill_by_phase(prefill, rates, phases.prefill, router, engine)
    transfer = triggers.transfer_by_phase(prefill, rates, phases.transfer, router, engine)
    return Scaling(
        triggers={Role.PREFILL: (by_phase,), Role.DECODE: (first, transfer)},
        warnings=phases.prefill.warnings + phases.transfer.warnings,
    )


def _decode(
    stack: ModelStack, engine: EngineDialect, *, prefill_decode: bool
) -> tuple[scaling.DecodeSignal, scaling.Threshold]:
    signal = scaling.decode_signal(stack.autoscaling.decode_signal, prefill_decode=prefill_decode, engine=engine)
    threshold = scaling.decode_threshold(signal, stack.autoscaling.thresholds.decode)
    fleet = stack.topology.fleets.get(Role.DECODE) or stack.topology.fleets[Role.BOTH]
    if signal is scaling.DecodeSignal.OCCUPANCY and fleet.max_num_seqs and fleet.kv_tokens:
        scaling.check_occupancy_reachable(
            threshold=threshold,
            max_sequences=fleet.max_num_seqs,
            tokens_per_sequence=stack.slo.input_tokens + stack.slo.output_tokens,
            kv_tokens=fleet.kv_tokens,
        )
    return signal, threshold
