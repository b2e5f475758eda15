"""Whether a stack does what it declares: it answers, prefill and decode really split, and its scalers really scale."""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass

from cluster import Cluster, ClusterError, Kind, NotYet, wait_for
from llmd import dialects
from llmd.outputs import EnvironmentOutputs, FleetOutputs, ModelOutputs, ScalerOutputs
from llmd.roles import Role
from ops.healthy import unhealthy
from ops.router import Answer, Model, NoPodError

SCALED_OBJECT = Kind("keda.sh/v1alpha1", "ScaledObject")
HPA = Kind("autoscaling/v2", "HorizontalPodAutoscaler")
PROBES = 5  # completions sent as proof of the split; more prove no more
PROMPT = "How are you today? " * 8  # longer than one KV block, so that there is something to transfer
PREFILL_DECODE = "prefill-decode"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One statement about a model, whether it holds, and what to do when it does not."""

    model: str
    name: str
    expected: str
    seen: str
    holds: bool
    remedy: str


def verify(cluster: Cluster, environment: EnvironmentOutputs, timeout_seconds: float) -> Iterator[Check]:
    """Every check of every model, in order; scalers may take `timeout_seconds` to become healthy."""
    router = dialects.router(environment.router_version)
    engine = dialects.engine(environment.engine_name, environment.engine_version)
    for outputs in environment.models:
        model = Model(cluster, outputs)
        try:
            completion = _completion(model)
            yield completion
            if outputs.topology == PREFILL_DECODE and completion.holds:
                yield from _split(model, router, engine)
        except (NoPodError, ClusterError, http.client.HTTPException, OSError) as unreachable:
            yield _no_answer(outputs, unreachable)
        for fleet in outputs.fleets:
            if fleet.scaler is not None:
                yield _healthy(cluster, outputs, fleet, fleet.scaler, timeout_seconds)


def _completion(model: Model) -> Check:
    answer = model.complete(PROMPT, max_tokens=8)
    text = _text(answer)
    return Check(
        model=model.outputs.key,
        name="completion",
        expected="HTTP 200 with text",
        seen=f"HTTP {answer.status}, {text!r}" if text else f"HTTP {answer.status}: {answer.body.strip()[:200]}",
        holds=bool(text),
        remedy=f"kubectl -n {model.outputs.namespace} logs deployment/{model.outputs.router} --all-containers",
    )


def _no_answer(model: ModelOutputs, error: Exception) -> Check:
    return Check(
        model=model.key,
        name="pods answer",
        expected="an answer from each pod that is asked",
        seen=f"{type(error).__name__}: {error}",
        holds=False,
        remedy=f"kubectl -n {model.namespace} get pods,events",
    )


def _split(model: Model, router: dialects.RouterDialect, engine: dialects.EngineDialect) -> Iterator[Check]:
    """Two witnesses that know nothing of each other: the picker's decisions and the prefill engines' own counters."""

    def counters() -> tuple[float, float]:
        return model.decisions(router, PREFILL_DECODE), model.answered(Role.PREFILL, engine)

    before = counters()
    for _ in range(PROBES):
        model.complete(PROMPT, max_tokens=2)
    decided, prefilled = (after - earlier for after, earlier in zip(counters(), before, strict=True))
    for name, rose, remedy in (
        ("picker decided prefill-decode", decided, "look at the picker's config and at the roles of the pool's pods"),
        ("prefill pods answered", prefilled, "look at the routing sidecar's log on the decode pods"),
    ):
        yield Check(
            model=model.outputs.key,
            name=name,
            expected=f"{PROBES} of {PROBES} requests",
            seen=f"{rose:g} of {PROBES}",
            holds=rose == PROBES,
            remedy=remedy if rose < PROBES else "other clients used the model meanwhile: verify while it is idle",
        )


def _healthy(
    cluster: Cluster, model: ModelOutputs, fleet: FleetOutputs, scaler: ScalerOutputs, timeout_seconds: float
) -> Check:
    def probe() -> None:
        reasons = unhealthy(
            cluster.get(SCALED_OBJECT, scaler.scaled_object, model.namespace),
            cluster.get(HPA, scaler.hpa, model.namespace),
        )
        if reasons:
            raise NotYet("; ".join(reasons))

    try:
        wait_for("healthy", probe, timeout_seconds=timeout_seconds)
        seen = "healthy"
    except (TimeoutError, ClusterError) as failed:
        seen = str(failed)
    return Check(
        model=model.key,
        name=f"scaler {scaler.scaled_object}",
        expected=f"no fallback, {len(scaler.triggers)} live trigger(s), {fleet.minimum}-{fleet.maximum} replicas",
        seen=seen,
        holds=seen == "healthy",
        remedy=f"kubectl -n {model.namespace} describe scaledobject {scaler.scaled_object}",
    )


def _text(answer: Answer) -> str:
    if answer.status != http.client.OK:
        return ""
    return json.loads(answer.body)["choices"][0]["text"].strip()
