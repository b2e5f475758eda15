"""What must agree between the parts of an environment's configuration, beyond the form of each value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from llmd import dialects, gpus, vllm
from llmd.names import InvalidNameError, PrefixedNameError, check_models
from llmd.rates import RateError
from llmd.roles import Role
from llmd.scaling import ScalingError, UnkeepableSloError
from stacks import derive
from stacks.model_schema import CoLocated, Fleet, ModelStack, Pinned, PrefillDecode
from stacks.schema import Environment

_VALUELESS = object()
# A leaving pod waits as long as a request may take; a rollout that waits longer for each pod is a mistake in the SLO.
LONGEST_DRAIN_SECONDS = 24 * 60 * 60


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One mistake: where it is, what stands there, and what is allowed instead."""

    path: str
    value: object = _VALUELESS
    problem: str

    def __str__(self) -> str:
        value = "" if self.value is _VALUELESS else f"{_short(self.value)}: "
        return f"{self.path}: {value}{self.problem}"


def faults(environment: Environment) -> list[Fault]:
    """Everything that contradicts something else, in the order of the file."""
    found = [*_dialects(environment)]
    sound = not found
    found += _names(environment)
    found += _budget(environment)
    for key, stack in environment.models.items():
        found += _model(f"models.{key}", stack, environment)
        if sound:
            found += _scaling(f"models.{key}", key, stack, environment)
    return found


def _dialects(environment: Environment) -> Iterator[Fault]:
    try:
        dialects.router(environment.router.version)
    except dialects.UnknownDialectError as error:
        yield Fault(path="router.version", value=environment.router.version, problem=str(error))
    engine = environment.engine
    try:
        dialects.engine(engine.name, engine.version)
    except dialects.UnknownDialectError as error:
        path = "engine.name" if error.value == engine.name else "engine.version"
        yield Fault(path=path, value=error.value, problem=str(error))


def _names(environment: Environment) -> Iterator[Fault]:
    for key, stack in environment.models.items():
        try:
            derive.names(key, stack)
        except InvalidNameError as error:
            path = f"models.{key}" if error.value == key else f"models.{key}.namespace.name"
            yield Fault(path=path, value=error.value, problem=error.rule)
        if stack.namespace.name == "default" or stack.namespace.name.startswith("kube-"):
            problem = "belongs to Kubernetes; allowed: a namespace of the model's own"
            yield Fault(path=f"models.{key}.namespace.name", value=stack.namespace.name, problem=problem)
    try:
        check_models(environment.models)
    except PrefixedNameError as error:
        yield Fault(path=f"models.{error.value}", value=error.value, problem=error.rule)
    yield from _shared(
        ((f"models.{key}.namespace.name", stack.namespace.name) for key, stack in environment.models.items()),
        "each model has a namespace of its own (its quota and its scalers count whole namespaces)",
    )
    ports = ((f"models.{key}.router.nodePort", stack.router.node_port) for key, stack in environment.models.items())
    yield from _shared(((path, port) for path, port in ports if port), "each router has a node port of its own")


def _shared(values: Iterable[tuple[str, object]], problem: str) -> Iterator[Fault]:
    values = list(values)
    counts = Counter(value for _, value in values)
    for path, value in values:
        if counts[value] > 1:
            yield Fault(path=path, value=value, problem=f"used by {counts[value]} models; {problem}")


def _budget(environment: Environment) -> Iterator[Fault]:
    demands = [demand for key, stack in environment.models.items() for demand in derive.demands(key, stack)]
    placed = [demand for demand in demands if _has_place(demand, environment)]  # the others are faults of their fleets
    for tally in gpus.tally(derive.accelerators(environment), placed):
        name = tally.accelerator.name
        for problem in tally.problems:
            arithmetic = problem.removeprefix(f"{name}: ")
            yield Fault(path=f"accelerators.{name}.budget", value=tally.accelerator.budget, problem=arithmetic)


def _has_place(demand: gpus.Demand, environment: Environment) -> bool:
    accelerator = environment.accelerators.get(demand.accelerator)
    return accelerator is not None and demand.gpus_per_replica <= accelerator.per_node


def _model(path: str, stack: ModelStack, environment: Environment) -> Iterator[Fault]:
    yield from _lengths(path, stack)
    yield from _calibration(f"{path}.calibration", stack)
    for role, fleet in stack.topology.fleets.items():
        yield from _fleet(f"{path}.topology.{role.suffix}", role, fleet, stack, environment)
    router = stack.router
    if router.node_port is not None and router.service_type == "LoadBalancer":
        problem = "allowed with a nodePort: NodePort (or leave serviceType out)"
        yield Fault(path=f"{path}.router.serviceType", value=router.service_type, problem=problem)
    if isinstance(stack.topology, CoLocated) and stack.autoscaling.prefill_signal == "phase":
        problem = "allowed co-located: path (both phases run in one engine)"
        yield Fault(path=f"{path}.autoscaling.prefillSignal", value="phase", problem=problem)
    by_phase = isinstance(stack.topology, PrefillDecode) and stack.autoscaling.prefill_signal != "path"
    if stack.autoscaling.thresholds.transfer is not None and not by_phase:
        problem = "read only on prefill-decode with prefillSignal phase; leave it out"
        value = stack.autoscaling.thresholds.transfer
        yield Fault(path=f"{path}.autoscaling.thresholds.transfer", value=value, problem=problem)


def _lengths(path: str, stack: ModelStack) -> Iterator[Fault]:
    slo, longest = stack.slo, stack.model.max_model_len
    if slo.output_tokens > slo.max_output_tokens:
        problem = f"allowed: at most slo.maxOutputTokens ({slo.max_output_tokens})"
        yield Fault(path=f"{path}.slo.outputTokens", value=slo.output_tokens, problem=problem)
    if slo.input_tokens + slo.output_tokens > longest:
        problem = f"with outputTokens ({slo.output_tokens}) it must fit model.maxModelLen ({longest})"
        yield Fault(path=f"{path}.slo.inputTokens", value=slo.input_tokens, problem=problem)
    if slo.max_output_tokens > longest:
        problem = f"allowed: at most model.maxModelLen ({longest})"
        yield Fault(path=f"{path}.slo.maxOutputTokens", value=slo.max_output_tokens, problem=problem)
    drain = derive.drain_seconds(stack)
    if drain > LONGEST_DRAIN_SECONDS:
        problem = (
            f"with {slo.max_output_tokens} output tokens a request may take {drain} s, and a leaving pod waits for it; "
            f"allowed: at most {LONGEST_DRAIN_SECONDS} s"
        )
        yield Fault(path=f"{path}.slo.interTokenSeconds", value=slo.inter_token_seconds, problem=problem)


def _calibration(path: str, stack: ModelStack) -> Iterator[Fault]:
    pinned, split = stack.calibration, isinstance(stack.topology, PrefillDecode)
    if not isinstance(pinned, Pinned):
        problem = "not available yet; allowed: pinned, with pathThroughput and source (and prefillThroughput on P/D)"
        yield Fault(path=f"{path}.mode", value="measure", problem=problem)
        return
    if split and pinned.prefill_throughput is None:
        problem = "missing; on prefill-decode the rate of the same request straight to a prefill pod, tokens/s"
        yield Fault(path=f"{path}.prefillThroughput", problem=problem)
        return
    if not split and pinned.prefill_throughput is not None:
        problem = "co-located pods have one path; leave it out"
        yield Fault(path=f"{path}.prefillThroughput", value=pinned.prefill_throughput, problem=problem)
        return
    try:
        derive.pinned_rates(stack)
    except RateError as error:
        yield Fault(path=f"{path}.pathThroughput", value=pinned.path_throughput, problem=str(error))


def _fleet(path: str, role: Role, fleet: Fleet, stack: ModelStack, environment: Environment) -> Iterator[Fault]:
    accelerator = environment.accelerators.get(fleet.accelerator)
    if accelerator is None:
        problem = f"allowed: {', '.join(environment.accelerators)} (the keys of accelerators)"
        yield Fault(path=f"{path}.accelerator", value=fleet.accelerator, problem=problem)
    else:
        if fleet.tensor_parallel > accelerator.per_node:
            problem = f"allowed: at most {accelerator.per_node} (GPUs of one {fleet.accelerator} node)"
            yield Fault(path=f"{path}.tensorParallel", value=fleet.tensor_parallel, problem=problem)
        if stack.rollout.strategy == "surge" and accelerator.headroom < fleet.tensor_parallel:
            problem = (
                f"allowed: at least {fleet.tensor_parallel}, since {path} rolls out by surge with one extra replica of "
                f"{fleet.tensor_parallel} GPUs (or rollout.strategy: in-place)"
            )
            yield Fault(path=f"accelerators.{fleet.accelerator}.headroom", value=accelerator.headroom, problem=problem)
    for argument in fleet.extra_args:
        owned = _owned_flag(role, argument, environment)
        if owned:
            problem = f"{owned} is rendered from other keys; extraArgs may not change it"
            yield Fault(path=f"{path}.extraArgs", value=argument, problem=problem)
    hub = vllm.Hub(endpoint="http://hub", token=("secret", "key"))
    owned_variables = {variable.name for each in (None, hub) for variable in vllm.environment(role, each)}
    for name in owned_variables & fleet.extra_env.keys():
        problem = "rendered from other keys; extraEnv may not change it"
        yield Fault(path=f"{path}.extraEnv.{name}", value=fleet.extra_env[name], problem=problem)


def _owned_flag(role: Role, argument: str, environment: Environment) -> str | None:
    """The flag of ours that `argument` would set: by its name, with underscores, negated, or by an abbreviation."""
    given = re.split(r"[=\s]", argument)[0].replace("_", "-")
    if given in _SHORT_FLAGS:
        return _SHORT_FLAGS[given]
    if not given.startswith("--"):
        return None
    try:
        engine = dialects.engine(environment.engine.name, environment.engine.version)
    except dialects.UnknownDialectError:
        return None  # reported once, by _dialects
    full = vllm.Server(
        model="m", served_name="m", revision="r", max_model_len=2, max_batched_tokens=1, tensor_parallel=1,
        gpu_memory_utilization=0.9, max_num_seqs=1, shutdown_seconds=1,
    )  # fmt: skip
    flags = [text.partition("=")[0] for text in vllm.arguments(role, full, engine) if text.startswith("--")]
    flags += ["--host", "--model", "--no-enable-chunked-prefill", "--disable-log-stats"]
    for flag in flags:
        if given == flag or (len(given) > len("--") and flag.startswith(given)) or _negated(given) == _negated(flag):
            return flag
    return None


_SHORT_FLAGS = {"-tp": "--tensor-parallel-size"}


def _negated(flag: str) -> str:
    return "--" + flag.removeprefix("--").removeprefix("no-")


def _scaling(path: str, key: str, stack: ModelStack, environment: Environment) -> Iterator[Fault]:
    try:
        names, rates = derive.names(key, stack), derive.pinned_rates(stack)
        if isinstance(stack.topology, PrefillDecode) and rates.prefill is None:
            return  # reported by _calibration
    except (InvalidNameError, NotImplementedError, RateError):
        return  # reported where they belong
    router = dialects.router(environment.router.version)
    engine = dialects.engine(environment.engine.name, environment.engine.version)
    try:
        derive.scaling_of(names, stack, rates, router, engine)
    except UnkeepableSloError as error:
        yield Fault(path=f"{path}.slo.ttftSeconds", value=stack.slo.ttft_seconds, problem=str(error))
    except ScalingError as error:
        threshold = stack.autoscaling.thresholds.decode
        if threshold is None:
            value = stack.autoscaling.decode_signal.value
            yield Fault(path=f"{path}.autoscaling.decodeSignal", value=value, problem=str(error))
        else:
            yield Fault(path=f"{path}.autoscaling.thresholds.decode", value=threshold, problem=str(error))


def _short(value: object, most: int = 80) -> str:
    text = repr(value) if isinstance(value, str) else f"{value:.15g}" if isinstance(value, float) else str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"
