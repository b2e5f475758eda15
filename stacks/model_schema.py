"""What one model stack may say: what is served, on which fleets, within which promise, and how it scales.

Keys are camelCase in YAML and snake_case here. A unit is in the key's name; GPUs, replicas and tokens are counts.
What must agree *between* parts of the tree is in `stacks/checks.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from llmd import hpa, vllm
from llmd.roles import Role
from llmd.scaling import DecodeSignal, Statistic
from stacks.scalars import (
    Bytes,
    Commit,
    Count,
    Cpu,
    Duration,
    Flag,
    ModelId,
    Port,
    Positive,
    Seconds,
    Section,
    Share,
    Target,
    Text,
    Value,
    Variable,
)

Period = Annotated[int, Field(strict=True, ge=1, le=1800)]  # the HPA's own bounds
Window = Annotated[int, Field(strict=True, ge=0, le=3600)]


class Namespace(Section):
    """The model's own namespace."""

    name: Text
    create: Flag = True


class Model(Section):
    """What is served."""

    id: ModelId
    revision: Commit
    dtype: Text = "auto"
    max_model_len: Count
    max_batched_tokens: Count
    block_size: Count = vllm.BLOCK_SIZE  # tokens of a KV block


class Scale(Section):
    """Bounds of a scaled fleet; `min` is at least 1, since at 0 the picker answers 503 and no request could wake it."""

    min: Count = 1
    max: Count

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise PydanticCustomError(
                "bounds", "min {low} is above max {high}; allowed: 1 <= min <= max", {"low": self.min, "high": self.max}
            )
        return self


class Resources(Section):
    """CPU and memory of one container: the request, and the same as memory limit."""

    cpu: Cpu
    memory: Bytes


class Startup(Section):
    """How long a model server may take to serve, and how often it is asked."""

    budget_seconds: Duration = 3600  # a first start may download and compile; upstream's startup probe gives an hour
    period_seconds: Duration = 10
    readiness_period_seconds: Duration = 5  # upstream's; a pod that left the pool is noticed within it

    @property
    def failure_threshold(self) -> int:
        """Failed startup probes after which the budget is used up."""
        return math.ceil(self.budget_seconds / self.period_seconds)


class Fleet(Section):
    """The model servers of one role."""

    accelerator: Text
    tensor_parallel: Count = 1
    replicas: Annotated[
        Annotated[Count, Tag("fixed")] | Annotated[Scale, Tag("scaled")],
        Discriminator(lambda value: "scaled" if isinstance(value, Mapping | Scale) else "fixed"),
    ]
    gpu_memory_utilization: Share | None = None
    max_num_seqs: Count | None = None
    kv_tokens: Count | None = None  # KV cache of one replica, as the engine logs it at start
    resources: Resources = Resources(cpu="8", memory="64Gi")  # upstream's decode: 16 and 64 Gi, prefill: 8 and 16 Gi
    shared_memory: Bytes = "16Gi"  # NCCL's segments live in /dev/shm; the 64 Mi default breaks tensor parallelism
    extra_env: dict[Variable, Value] = Field(default_factory=dict)
    extra_args: tuple[Text, ...] = ()
    startup: Startup = Startup()

    @property
    def minimum(self) -> int:
        """Fewest replicas."""
        return self.replicas.min if isinstance(self.replicas, Scale) else self.replicas

    @property
    def maximum(self) -> int:
        """Most replicas."""
        return self.replicas.max if isinstance(self.replicas, Scale) else self.replicas


class PrefillDecode(Section):
    """Prefill and decode on separate fleets; `fabric` says what carries the KV cache between them."""

    kind: Literal["prefill-decode"]
    fabric: Text
    prefill: Fleet
    decode: Fleet

    @property
    def fleets(self) -> dict[Role, Fleet]:
        """Each role's servers."""
        return {Role.PREFILL: self.prefill, Role.DECODE: self.decode}


class CoLocated(Section):
    """Both phases in one fleet."""

    kind: Literal["co-located"]
    server: Fleet

    @property
    def fleets(self) -> dict[Role, Fleet]:
        """Each role's servers."""
        return {Role.BOTH: self.server}


class NewClaim(Section):
    """A claim that we make and fill once per (model, revision)."""

    size: Bytes
    storage_class: Text | None = None  # the cluster's default when left out
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    retain: Flag = False  # whether claim and namespace stay on destroy: never by surprise, weights can be fetched again
    download_seconds: Duration = 3600  # 65 GB of weights in an hour is 18 MB/s


class ExistingClaim(Section):
    """A claim of someone else's that we fill but never delete."""

    existing_claim: Text
    download_seconds: Duration = 3600


def _no_cache(value: object) -> object:
    if value != "none":
        raise PydanticCustomError("cache", "allowed: none, {size: …} or {existingClaim: …}")
    return value


def _cache_kind(value: object) -> str:
    given = value if isinstance(value, Mapping) else {}
    if isinstance(value, ExistingClaim) or any(str(key).startswith("existing") for key in given):
        return "existing"  # also where the key is misspelt, so that the error is about this kind
    return "claim" if isinstance(value, Mapping | NewClaim) else "none"


Cache = Annotated[
    Annotated[NewClaim, Tag("claim")]
    | Annotated[ExistingClaim, Tag("existing")]
    | Annotated[Any, AfterValidator(_no_cache), Tag("none")],
    Discriminator(_cache_kind),
]


class Slo(Section):
    """What one request may take. `inputTokens` are those that no prefix cache holds."""

    ttft_seconds: Seconds
    ttft_statistic: Statistic = Statistic.MEAN
    inter_token_seconds: Seconds
    input_tokens: Count
    output_tokens: Count
    max_output_tokens: Count


def _calibration_mode(value: object) -> str | None:
    mode = value.get("mode", "measure") if isinstance(value, Mapping) else getattr(value, "mode", None)
    return mode if isinstance(mode, str) else None


class Pinned(Section):
    """Rates that someone measured, in tokens per second of one replica.

    `pathThroughput` is V_P, the whole path of a request; `prefillThroughput` the same straight to a prefill pod.
    """

    mode: Literal["pinned"]
    path_throughput: Positive
    prefill_throughput: Positive | None = None  # prefill-decode only: co-located has one path
    source: Text


class Measured(Section):
    """Rates that are measured on the cluster."""

    mode: Literal["measure"] = "measure"
    on: Literal["dedicated", "pool"] = "dedicated"


class ScaleUp(Section):
    """How fast a fleet may grow.

    One replica at a time, and the next only when the last one serves: one weight load from cache took 176-257 s
    (11 samples, Aug 2026), and a backlog that a starting pod will clear must not buy a second one. It never waits to
    begin with: the queries already average over a minute.
    """

    pods: Count = 1
    period_seconds: Period = hpa.ONE_AT_A_TIME.up.policies[0].period_seconds
    stabilization_seconds: Window = hpa.ONE_AT_A_TIME.up.stabilization_seconds


class ScaleDown(Section):
    """How fast a fleet may shrink.

    A removed replica costs a weight load to get back, so the highest wish of the last five minutes (the HPA's default)
    holds, and one goes at a time: its drain is over before the next begins.
    """

    pods: Count = 1
    period_seconds: Period = hpa.ONE_AT_A_TIME.down.policies[0].period_seconds
    stabilization_seconds: Window = hpa.ONE_AT_A_TIME.down.stabilization_seconds


class Behavior(Section):
    """The HPA's behavior."""

    scale_up: ScaleUp = ScaleUp()
    scale_down: ScaleDown = ScaleDown()


class Thresholds(Section):
    """Targets per replica that replace the computed ones: seconds of backlog, or decode's KV signal."""

    prefill: Target | None = None
    transfer: Target | None = None
    decode: Target | None = None


class Autoscaling(Section):
    """On what the fleets scale, and how fast."""

    prefill_signal: Literal["phase", "path"] | None = None  # phase on prefill-decode, path co-located
    decode_signal: DecodeSignal = DecodeSignal.AUTO
    # tokens the picker counts per real token (it takes text as bytes / 4)
    token_estimate_ratio: Annotated[Positive, Field(le=100)] = 1.0
    thresholds: Thresholds = Thresholds()
    behavior: Behavior = Behavior()


class Rollout(Section):
    """How a changed fleet is replaced: one extra pod first (needs headroom), or pod by pod in place."""

    strategy: Literal["surge", "in-place"] = "surge"


class ModelRouter(Section):
    """The model's own router: how clients reach it and what it may use."""

    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    node_port: Port | None = None  # a fixed port of every node; implies NodePort
    endpoint_picker: Resources = Resources(cpu="4", memory="8Gi")  # the upstream guides' values
    envoy: Resources = Resources(cpu="4", memory="8Gi")


class ModelStack(Section):
    """One model: its fleets, its router and its scalers."""

    namespace: Namespace
    model: Model
    topology: Annotated[PrefillDecode | CoLocated, Field(discriminator="kind")]
    cache: Cache
    slo: Slo
    calibration: Annotated[
        Annotated[Pinned, Tag("pinned")] | Annotated[Measured, Tag("measure")],
        Discriminator(_calibration_mode),
    ] = Measured()
    autoscaling: Autoscaling = Autoscaling()
    rollout: Rollout = Rollout()
    router: ModelRouter = ModelRouter()
